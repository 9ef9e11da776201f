package passthrough

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// A watch that is recalled ends between two events, at once if it is there, and properly.
func TestLastingBodyRecalled(t *testing.T) {
	for name, c := range map[string]struct {
		before, after, want string // written before the recall, and after it; all that is read
	}{
		"nothing":         {"", "", ""},
		"whole events":    {"one\ntwo\n", "", "one\ntwo\n"},
		"within an event": {"one\ntw", "o\n", "one\ntwo\n"},
		"events in one":   {"on", "e\ntwo\n", "one\ntwo\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from, to := io.Pipe()
				resp := &http.Response{Body: from, Header: http.Header{"Content-Type": {"application/json"}}}
				body := newLastingBody(resp, t.Context())
				var cancelled atomic.Bool
				recall := make(chan struct{})
				go body.endAfter(t.Context(), recall, func() { cancelled.Store(true); to.CloseWithError(context.Canceled) })
				var got []byte
				read := make(chan error)
				go func() {
					var err error
					got, err = io.ReadAll(body)
					read <- err
				}()
				if c.before != "" {
					_, _ = io.WriteString(to, c.before)
				}
				synctest.Wait()
				close(recall)
				if c.after != "" {
					time.Sleep(recallSpread)
					_, _ = io.WriteString(to, c.after)
				}
				if err := <-read; err != nil || string(got) != c.want {
					t.Errorf("got %q, %v, want %q", got, err, c.want)
				}
				if want := c.after == ""; cancelled.Load() != want {
					t.Errorf("the request to upstream is cancelled: %v, want %v", cancelled.Load(), want)
				}
				to.Close()
			})
		})
	}
}
