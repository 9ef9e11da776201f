package passthrough

import (
	"context"
	"io"
	"net/http"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"
)

var jsonHeader = http.Header{"Content-Type": {"application/json"}}

// A watch that is recalled ends properly where its client resumes: behind a bookmark, or behind a change
// if it began behind a resourceVersion. It ends at once if it is there.
func TestLastingBodyRecalled(t *testing.T) {
	bookmark := bookmarks[0] + "}\n"
	change, deletion := changes[1]+"}\n", `{"type":"DELETED"}`+"\n"
	for name, c := range map[string]struct {
		before, after, want string // written before the recall, and after it; all that is read
		ordered             bool
	}{
		"a change":                {change, "", change, true},
		"a deletion":              {change + deletion, deletion + change, change + deletion + deletion + change, true},
		"initial events":          {change, change + bookmark, change + change + bookmark, false},
		"behind the initial ones": {change + bookmark + change, "", change + bookmark + change, false},
		"nothing":                 {"", "", "", true},
		"no initial events yet":   {"", change + bookmark, change + bookmark, false},
		"a bookmark":              {"one\n" + bookmark, "", "one\n" + bookmark, false},
		"an event":                {bookmark + "one\n", "two\n" + bookmark, bookmark + "one\ntwo\n" + bookmark, false},
		"within an event":         {bookmark + "on", "e\n" + bookmark, bookmark + "one\n" + bookmark, false},
		"within a bookmark":       {"one\n" + bookmark[:9], bookmark[9:], "one\n" + bookmark, false},
		"events behind bookmark":  {"one\n", bookmark + "two\nthr", "one\n" + bookmark, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				from, to := io.Pipe()
				resp := &http.Response{StatusCode: http.StatusOK, Body: from, Header: jsonHeader}
				body := newLastingBody(resp, &Watch{ordered: c.ordered}, NewMetrics(metrics.NewSet()), t.Context())
				var cancelled atomic.Bool
				recall := make(chan struct{})
				defer onRecall(t.Context(), recall, spreadRecall, func() {
					body.end(func() { cancelled.Store(true); to.CloseWithError(context.Canceled) })
				})()
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
				recalled := time.Now()
				close(recall)
				if c.after != "" {
					time.Sleep(recallAfter + recallSpread)
					_, _ = io.WriteString(to, c.after)
				}
				if err := <-read; err != nil || string(got) != c.want {
					t.Errorf("got %q, %v, want %q", got, err, c.want)
				}
				if lasted := time.Since(recalled); lasted < recallAfter {
					t.Errorf("the watch ended %s after its recall, and not %s at least", lasted, recallAfter)
				}
				if want := c.after == ""; cancelled.Load() != want {
					t.Errorf("the request to upstream is cancelled: %v, want %v", cancelled.Load(), want)
				}
				to.Close()
			})
		})
	}
}

// A recall that comes with the bytes of an event ends the watch before them or behind the bookmark
// that follows, and never within an event.
func TestLastingBodyRecalledWithin(t *testing.T) {
	event := "one\n" + bookmarks[0] + "}\n"
	for range 5000 {
		ctx, cancel := context.WithCancel(t.Context())
		resp := &http.Response{StatusCode: http.StatusOK, Body: &pieces{ctx: ctx, left: event}, Header: jsonHeader}
		body := newLastingBody(resp, new(Watch), NewMetrics(metrics.NewSet()), t.Context())
		go body.end(cancel)
		got, err := io.ReadAll(body)
		if cancel(); err != nil || string(got) != event && len(got) != 0 {
			t.Fatalf("read %q, %v, want %q or nothing", got, err, event)
		}
	}
}

// pieces is a body that comes in pieces of at most two bytes, until ctx ends.
type pieces struct {
	ctx  context.Context
	left string
}

func (p *pieces) Read(to []byte) (n int, err error) {
	if p.left == "" {
		<-p.ctx.Done()
	}
	if p.ctx.Err() != nil {
		return 0, p.ctx.Err()
	}
	n = copy(to, p.left[:min(2, len(p.left))])
	p.left = p.left[n:]
	return n, nil
}

func (p *pieces) Close() error { return nil }

// Only a watch whose events can be told apart ends properly when the proxy stops. Of a compressed one nobody
// knows where its events end. Any other response is not whole because a line of it is.
func TestLastingBodyStopped(t *testing.T) {
	watch := new(Watch)
	for name, c := range map[string]struct {
		watch    *Watch
		status   int
		encoding string
		want     error
	}{
		"a watch":             {watch, http.StatusOK, "", io.EOF},
		"compressed":          {watch, http.StatusOK, "gzip", io.ErrClosedPipe},
		"a refused watch":     {watch, http.StatusForbidden, "", io.ErrClosedPipe},
		"of a proxied server": {nil, http.StatusOK, "", io.ErrClosedPipe},
	} {
		from, to := io.Pipe()
		header := jsonHeader.Clone()
		if c.encoding != "" {
			header.Set("Content-Encoding", c.encoding)
		}
		stopping, stop := context.WithCancel(t.Context())
		resp := &http.Response{StatusCode: c.status, Body: from, Header: header}
		body := newLastingBody(resp, c.watch, NewMetrics(metrics.NewSet()), stopping)
		go func() { _, _ = io.WriteString(to, "bytes\n") }()
		if _, err := io.ReadFull(body, make([]byte, len("bytes\n"))); err != nil {
			t.Fatal(err)
		}
		stop()
		from.Close()
		if _, err := body.Read(make([]byte, 1)); err != c.want {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
	}
}
