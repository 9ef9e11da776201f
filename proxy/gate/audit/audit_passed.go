package audit

import (
	"net/http"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Passed is the record of a request that is passed through in a user's name. kube-apiserver's own
// audit log names the proxy's account as the user, and the client as the impersonated user. If the
// client itself impersonates another user, kube-apiserver's log does not name the client at all.
// Both logs have the same auditID. A nil Passed writes nothing. It is used by one goroutine at a
// time.
type Passed struct {
	audit *Log
	e     *Event
}

// Passing begins the record of a request that is about to pass through in the name of id. It
// returns nil for clients that kube-apiserver identifies itself: those with a token, those without
// credentials, and the proxy. If refused is not nil, the request must not go on, and refused is the
// response.
func (a *Log) Passing(x *exchange.Exchange, id auth.Identity, req *request.Request) (p *Passed, refused *metav1.Status) {
	if a == nil || id.User == nil {
		return nil, nil
	}
	auditID := apistatus.AuditID(x)
	x.Header.Set("Audit-Id", auditID) // kube-apiserver uses it and returns it
	e := a.event(x, id, req, auditID)
	e.passed = true
	p = &Passed{a, e}
	if a.mode == AuditBlockingStrict { // an upstream change cannot be undone if its event is lost
		if !p.add(stageReceived, 0, nil) {
			return nil, notAudited(x)
		}
	}
	return p, nil
}

// Started records that kube-apiserver has begun a lasting response; see Lasting.
func (p *Passed) Started(code int) { p.add(stageStarted, code, nil) }

// Answered records the end of the request, with kube-apiserver's status code. A response that does
// not last is recorded when it begins.
func (p *Passed) Answered(code int) { p.add(stageComplete, code, nil) }

// Failed records that the request did not pass through, or not completely, and that the proxy
// answered it with st.
func (p *Passed) Failed(st *metav1.Status) { p.add(stageComplete, int(st.Code), st) }

// Left records that the request ended before kube-apiserver answered it. It may or may not have
// taken effect.
func (p *Passed) Left() { p.add(stageComplete, 0, nil) }

func (p *Passed) add(stage string, code int, st *metav1.Status) bool {
	if p == nil {
		return true
	}
	e := *p.e
	e.Stage, e.code, e.ResponseStatus, e.StageTimestamp = stage, code, st, metav1.NowMicro()
	return p.audit.add(&e)
}

// Lasting reports whether kube-apiserver writes two events for the response: one when it begins and
// one when it ends.
func Lasting(resp *http.Response) bool {
	return resp.StatusCode == http.StatusSwitchingProtocols || resp.StatusCode == http.StatusOK && resp.ContentLength < 0
}
