package passthrough

import (
	"context"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
	"github.com/watchfan/watchfan/proxy/wire/websocket"
)

const (
	// halfCloseGrace is how long one direction of an upgraded connection may go on after the other
	// has ended.
	halfCloseGrace = 30 * time.Second
	// closeGrace is how long the client of a WebSocket may take to accept what was under way and a CLOSE
	// frame, at its end and when the proxy is stopping.
	closeGrace = time.Second
	// overdue is how long a watch may go on after kube-apiserver should have ended it.
	overdue = 10 * time.Second
)

// tunnel joins the client's connection and the upgraded connection of resp. It returns when both
// directions have ended, or one has failed.
//
// A watch is broken off if kube-apiserver does not end it in time. Its connection may be one that
// kube-apiserver has forgotten. Nothing else would show that: there are no pings as on HTTP/2, and the
// client is connected to the proxy.
func (p *Forwarder) tunnel(to exchange.Responder, resp *http.Response, r *passing) {
	defer resp.Body.Close()
	up, ok := resp.Body.(io.ReadWriteCloser)
	if !ok {
		return
	}
	from, over := io.Reader(up), func() {}
	if r.follower != nil {
		r.moved = r.follower.Began(resp.Header)
		body := &followedBody{ReadCloser: up, follower: r.follower}
		from, over = body, body.over
	}
	answer := &exchange.Response{Status: resp.StatusCode}
	frames := strings.EqualFold(resp.Header.Get("Upgrade"), "websocket")
	if frames {
		addHandshake(&answer.Header, resp.Header)
	}
	addFields(&answer.Header, resp.Header)
	client, err := to.Upgrade(answer)
	if err != nil {
		over()
		return
	}
	t := &tunnel{client: client, up: up, ended: make(chan error, 2), answered: make(chan struct{}), donec: make(chan struct{})}
	if frames {
		t.frames = &followed{Upgraded: client, streams: p.streams, at: beginning(r.watch != nil && r.watch.ordered)}
		t.client = t.frames
	}
	defer close(t.donec)
	defer context.AfterFunc(p.streams, t.stop)()
	if r.watch != nil && r.watch.lasts > 0 {
		defer time.AfterFunc(r.watch.lasts+overdue, t.close).Stop()
	}
	if frames {
		for _, c := range r.recalls() {
			defer onRecall(p.streams, c.recall, c.after, func() {
				if t.frames.recall() {
					_ = up.Close() // ends the direction to the client
				}
			})()
		}
	}
	go func() {
		defer close(t.answered)
		defer over() // before wait says CLOSE
		p.join(t, t.client, from)
	}()
	go p.join(t, up, t.client)
	t.wait(p.streams)
}

// addHandshake moves the fields of a WebSocket's handshake from from to to, in kube-apiserver's order
// and spelling.
func addHandshake(to *exchange.Header, from http.Header) {
	for _, name := range []string{"Upgrade", "Connection", "Sec-WebSocket-Accept", websocket.ProtocolHeader} {
		if value := from.Get(name); value != "" {
			to.Add(name, value)
			from.Del(name)
		}
	}
}

// tunnel is two joined connections.
type tunnel struct {
	client, up io.ReadWriteCloser
	frames     *followed     // the client of a WebSocket; nil for others
	ended      chan error    // gets the error of each direction; capacity 2
	answered   chan struct{} // closed when the direction to the client has ended
	donec      chan struct{} // closed when both have
}

// join copies one direction until its end.
func (p *Forwarder) join(t *tunnel, to io.Writer, from io.Reader) {
	defer p.Guard.Caught("upgraded connection", func() { t.ended <- exchange.ErrPanicked })
	_, err := io.Copy(to, from)
	if err == nil {
		err = closeWrite(to)
	}
	t.ended <- err
}

// wait waits for both directions and closes both connections.
func (t *tunnel) wait(streams context.Context) {
	defer t.close()
	if err := <-t.ended; err == nil {
		grace := time.NewTimer(halfCloseGrace)
		defer grace.Stop()
		select {
		case <-t.ended:
			return
		case <-grace.C:
		}
	}
	if f := t.frames; f != nil {
		_ = t.up.Close()                                 // ends the direction to the client
		defer time.AfterFunc(closeGrace, t.close).Stop() // also if the client does not read
		<-t.answered
		if streams.Err() != nil || f.hasEnded() {
			f.sayClose()
		}
	}
	t.close()
	<-t.ended
}

// stop ends the tunnel because the proxy is stopping.
func (t *tunnel) stop() {
	if t.frames != nil {
		_ = t.up.Close() // ends the direction to the client; wait does the rest
		select {
		case <-t.donec:
			return
		case <-time.After(closeGrace):
		}
	}
	t.close()
}

func (t *tunnel) close() {
	_ = t.up.Close()
	_ = t.client.Close()
}

func closeWrite(w io.Writer) error {
	if c, ok := w.(interface{ CloseWrite() error }); ok {
		return c.CloseWrite()
	}
	return errors.ErrUnsupported
}

// followed is a client's connection while the frames of a WebSocket are passed through to it. One
// goroutine at a time writes.
type followed struct {
	exchange.Upgraded
	streams context.Context // ends when the proxy is stopping

	mu       sync.Mutex
	progress websocket.Progress
	at       place
	recalled bool // the watch ends where its client resumes
}

var errRecalled = errors.New("the client resumes elsewhere")

func (f *followed) Write(p []byte) (int, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.endedLocked() { // meanwhile: the client resumes before these bytes
		return 0, errRecalled
	}
	n, err := f.Upgraded.Write(p)
	f.progress.Pass(p[:n], f.at.pass)
	if err == nil && f.endedLocked() {
		err = errRecalled
	}
	return n, err
}

// CloseWrite ends the direction to the client, unless wait is to say CLOSE there: kube-apiserver may end its side of a
// connection that is being closed here before that is noticed.
func (f *followed) CloseWrite() error {
	if f.streams.Err() != nil || f.hasEnded() {
		return errRecalled
	}
	return f.Upgraded.CloseWrite()
}

// recall makes the watch end where its client resumes, and reports whether that is here.
func (f *followed) recall() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.recalled = true
	return f.endedLocked()
}

func (f *followed) endedLocked() bool {
	return f.recalled && f.progress.MayClose() && f.at.resumes()
}

func (f *followed) hasEnded() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.endedLocked()
}

// sayClose writes a CLOSE frame if one may follow.
func (f *followed) sayClose() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.progress.MayClose() {
		_, _ = io.WriteString(f.Upgraded, websocket.CloseNormal)
	}
}
