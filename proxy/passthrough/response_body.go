package passthrough

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
)

// responseBody is the body of an ordinary response while it is sent to the client.
type responseBody struct{ io.ReadCloser }

func (b *responseBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		passthroughBroken.Inc()
	}
	return n, err
}

func (b *responseBody) Close() error {
	inFlight.Add(-1)
	return b.ReadCloser.Close()
}

// lastingBody is the body of a response that may last. When the proxy is stopping, a watch ends
// properly if only whole events have been read.
type lastingBody struct {
	io.ReadCloser
	streams      context.Context // ends when the proxy is stopping
	lines, whole bool            // events are lines; only whole lines have been read
}

func newLastingBody(resp *http.Response, streams context.Context) *lastingBody {
	lines := strings.HasPrefix(resp.Header.Get("Content-Type"), "application/json")
	return &lastingBody{ReadCloser: resp.Body, streams: streams, lines: lines, whole: lines}
}

func (b *lastingBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.whole = b.lines && p[n-1] == '\n'
	}
	if err == nil || err == io.EOF {
		return n, err
	}
	if !errors.Is(err, context.Canceled) {
		passthroughBroken.Inc()
	}
	if b.whole && b.streams.Err() != nil {
		err = io.EOF
	}
	return n, err
}
