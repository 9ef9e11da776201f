package upstream

import (
	"crypto/rand"
	"errors"
	"net/http"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// via is this proxy's name in the Via header of its requests: "watchfan-" and a random text (RFC
// 9110, section 7.6.3). A request whose Via header has the name already has come back: the upstream
// is this watchfan, or another whose upstream is this one. The request would go around for ever, so
// it is refused.
//
// A lane's requests name none of its clients' proxies. So in a cycle of several watchfans, they are
// seen to come back only where each lane waits for the next watchfan's: the last of them passes its
// request through, and that one is refused. The upstream check is passed through by all watchfans,
// so it detects the cycle within its interval.
//
// Responses are not marked: they are kube-apiserver's, to the byte.
type via string

func newVia() via { return via(request.ViaPrefix + strings.ToLower(rand.Text())) }

// Mark adds the name to a request.
func (v via) Mark(h http.Header) {
	h["Via"] = []string{strings.Join(append(h["Via"], "1.1 "+string(v)), ", ")}
}

// Marked reports whether a request has come through this proxy.
func (v via) Marked(x *exchange.Exchange) bool {
	return slices.ContainsFunc(x.Header.All("Via"), func(proxies string) bool { return strings.Contains(proxies, string(v)) })
}

var ErrLoop = errors.New("requests come back to this watchfan: its upstream is itself, or another watchfan whose upstream it is; " +
	"name kube-apiserver's own address in the kubeconfig of one of them")

func LoopDetected() *metav1.Status {
	return apistatus.Failure(http.StatusLoopDetected, metav1.StatusReasonUnknown, ErrLoop.Error())
}
