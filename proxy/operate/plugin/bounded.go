package plugin

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const (
	// answerTimeout is longer than kube-apiserver takes for any answer.
	answerTimeout = 70 * time.Second
	maxAnswer     = 64 << 20 // bytes of an answer
	mostValues    = 8 << 20  // values of JSON in it, about; 5,000 pods have less
)

// boundedClient returns a client of the cluster for client-go, which reads answers whole and follows
// redirections. With this client it reads maxAnswer bytes with mostValues within answerTimeout at most, and
// follows none: kube-apiserver has no reason to send its clients elsewhere.
func boundedClient(cfg *rest.Config) (*http.Client, error) {
	transport, err := rest.TransportFor(cfg)
	if err != nil {
		return nil, err
	}
	return &http.Client{Transport: boundedAnswers{transport}, CheckRedirect: exchange.NoRedirect,
		Timeout: answerTimeout}, nil
}

// boundedAnswers bounds the answers of a transport.
type boundedAnswers struct{ http.RoundTripper }

func (b boundedAnswers) RoundTrip(req *http.Request) (*http.Response, error) {
	resp, err := b.RoundTripper.RoundTrip(req)
	if err == nil {
		resp.Body = &bounded{ReadCloser: resp.Body, left: maxAnswer, values: mostValues}
	}
	return resp, err
}

// bounded is a body that fails behind so many bytes or values, which take far more memory than "{}".
type bounded struct {
	io.ReadCloser
	left   int64
	values int
}

func (b *bounded) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p[:min(int64(len(p)), b.left+1)])
	for _, begin := range []string{"{", "[", ","} {
		b.values -= bytes.Count(p[:n], []byte(begin))
	}
	if b.left -= int64(n); b.left < 0 {
		return 0, fmt.Errorf("the answer has more than %d MiB", maxAnswer>>20)
	}
	if b.values < 0 {
		return 0, fmt.Errorf("the answer has more than %d values of JSON", mostValues)
	}
	return n, err
}
