package load

import (
	"context"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A slowServer answers each request with the same stream, of which a piece comes now and then, and which does
// not end.
type slowServer struct {
	stream   []byte
	encoding string
}

const pause = 10 * time.Millisecond

func (s slowServer) RoundTrip(r *http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Encoding": {s.encoding}}, Request: r,
		Body: io.NopCloser(&slowBody{s.stream, r.Context()})}, nil
}

type slowBody struct {
	left []byte
	ctx  context.Context
}

func (b *slowBody) Read(p []byte) (int, error) {
	if len(b.left) == 0 {
		<-b.ctx.Done()
		return 0, b.ctx.Err()
	}
	time.Sleep(pause) //testlint:allow timer its reader is in a bubble
	n := copy(p, b.left[:min(len(b.left), 1000)])
	b.left = b.left[n:]
	return n, nil
}

// TestSyncers: a plain stream is complete at its end bookmark, and a compressed one when it is silent.
// A client that does not get everything fails the case with the reason. Clients over sockets are those
// of TestScaleJoins.
func TestSyncers(t *testing.T) {
	const objects = 300
	f := func(name string, compressed bool, stream []byte, want string) {
		server := slowServer{stream: stream}
		if compressed {
			name, server = name+", compressed", slowServer{flushed(t, stream), "gzip"}
		}
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &Syncers{over: make(chan struct{}), bytes: make([]atomic.Int64, 2)}
				s.clients = Habit{Clients: 2, Shared: true, Target: func(int, int) string { return "/" }}.At(away)
				s.clients.clients[0].Transport = server
				s.clients.Take = func(i int, resp *http.Response) error { return s.take(i, resp, objects) }
				ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
				defer cancel()
				took, err := measureAlone(ctx, s)
				pieces := time.Duration((len(server.stream) + 999) / 1000)
				switch {
				case want != "":
					if err == nil || !strings.Contains(err.Error(), want) {
						t.Errorf("got %v, want %q", err, want)
					}
				case err != nil || s.Compressed.Load() != compressed || took != pieces*pause || s.Bytes() != int64(2*len(server.stream)):
					t.Errorf("got %v after %v, want %v, compressed %t, %d bytes", err, took, pieces*pause, s.Compressed.Load(), s.Bytes())
				}
			})
		})
	}
	for _, compressed := range []bool{false, true} {
		f("all", compressed, initialEvents(objects, true), "")
		f("too few", compressed, initialEvents(objects-1, true), "after 299 objects")
		f("no end", compressed, initialEvents(objects, false), "0 of 2 clients done after 1m0s")
	}
}

func measureAlone(ctx context.Context, s *Syncers) (time.Duration, error) {
	_, wall, err := s.Measure(ctx, nil)
	return wall, err
}
