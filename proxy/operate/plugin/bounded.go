package plugin

import (
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// changeTimeout is longer than kube-apiserver takes for any answer.
const changeTimeout = 70 * time.Second

// boundedClient returns a client of the cluster for client-go, which reads answers whole and follows
// redirections. With this client it reads maxAnswer bytes within changeTimeout at most, and follows none:
// kube-apiserver has no reason to send its clients elsewhere.
func boundedClient(cfg *rest.Config) (*http.Client, error) {
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: boundedAnswers{transport}, CheckRedirect: exchange.NoRedirect, Timeout: changeTimeout}, nil
}

// boundedAnswers bounds the answers of a transport.
type boundedAnswers struct{ http.RoundTripper }

func (b boundedAnswers) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(req)
	if err == nil {
		resp.Body = &bounded{ReadCloser: resp.Body, left: maxAnswer}
	}
	return resp, err
}

// bounded is a body that fails behind so many bytes.
type bounded struct {
	io.ReadCloser
	left int64
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("the answer has more than %d MiB", maxAnswer>>20)
	}
	return n, err
}
