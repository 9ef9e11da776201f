package http2

import (
	"errors"
	"io"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	wire "golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"

	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// responder writes the response to one request. It implements [exchange.Responder].
type responder struct {
	stream    *stream
	method    string
	slot      exchange.Slot // nil for none
	responded bool
}

// respond sends the response of x, and gives x back. lasting reports that the response is left to a
// shard.
func (r *responder) respond(x *exchange.Exchange) (lasting bool) {
	resp := &x.Response
	switch {
	case resp.Stream != nil:
		return r.watch(x)
	case resp.Detached != nil:
		answer := resp.Detached
		x.Written()
		x.Give()
		answer(r)
		if !r.responded {
			r.stream.reset(wire.ErrCodeInternal)
		}
		return false
	}
	defer x.Give()
	defer x.Written()
	r.stream.begin(x.WriteBy(), resp.Reader == nil)
	if r.slot != nil && resp.Reader == nil { // a Reader may be a watch that is passed through
		r.slot.Release()
	}
	if body := r.stream.body; body != nil && resp.Reader == nil {
		body.Release()
	}
	r.Respond(resp)
	return false
}

func (r *responder) OnGone(gone func()) {
	st := r.stream
	c := st.conn
	call := func() {
		go func() {
			defer c.server.Guard.Caught("stream's end", nil)
			gone()
		}()
	}
	c.mu.Lock()
	defer c.unlock()
	if st.closed {
		c.queued = append(c.queued, call)
		return
	}
	st.sendingLocked().gone = call
}

func (r *responder) Upgrade(*exchange.Response) (exchange.Upgraded, error) {
	return nil, errors.ErrUnsupported
}

func (r *responder) Respond(resp *exchange.Response) {
	r.responded = true
	defer func() { // also after a panic of the Reader
		if resp.Reader != nil {
			_ = resp.Reader.Close()
			resp.Reader = nil
		}
	}()
	if r.write(resp) != nil {
		r.stream.reset(wire.ErrCodeInternal)
	}
}

func (r *responder) write(resp *exchange.Response) error {
	st, length := r.stream, resp.BodyLength()
	if !resp.HasBody(r.method) || length == 0 {
		return st.sendHead(resp, length, true)
	}
	if err := st.sendHead(resp, length, false); err != nil {
		return err
	}
	if resp.Reader == nil {
		return st.sendSlices(resp.Body, resp.Turn)
	}
	return st.copy(resp.Reader, length)
}

// sendSlices sends a body of shared slices. A long body is sealed during turn.
func (st *stream) sendSlices(body exchange.BodySlices, turn exchange.Turn) error {
	if turn == nil || body.Size() <= downstream.SealedAtOnce {
		return st.send(body, true)
	}
	for len(body) > 0 {
		var part [][]byte
		part, body = cut(body, downstream.SealedAtOnce)
		if err := st.awaitRoom(); err != nil {
			return err
		}
		if err := turn.Resume(); err != nil {
			return err
		}
		err := st.offer(part, len(body) == 0)
		turn.Give()
		if err == nil {
			err = st.taken()
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// cut splits a body behind about n bytes.
func cut(body [][]byte, n int) (part, rest [][]byte) {
	for i, b := range body {
		if len(b) > n {
			part = append(append(part, body[:i]...), b[:n])
			body[i] = b[n:]
			return part, body[i:]
		}
		if n -= len(b); n == 0 {
			return body[:i+1], body[i+1:]
		}
	}
	return body, nil
}

// copy sends the bytes of from, each read at once, and the end of the body.
func (st *stream) copy(from io.Reader, length int64) error {
	total := int64(0)
	return exchange.Copy(from, length, func(p []byte, last bool) error {
		total += int64(len(p))
		if length > 0 && last && len(p) == 0 {
			return nil // END_STREAM has been sent
		}
		return st.send([][]byte{p}, last || total == length)
	})
}

// sendHead sends the head of a response, and END_STREAM if nothing follows. length is the body's,
// -1 if it is not known.
func (st *stream) sendHead(resp *exchange.Response, length int64, last bool) error {
	c := st.conn
	c.mu.Lock()
	defer c.unlock()
	if st.closed {
		return errLeft
	}
	st.headLocked(resp, length, last)
	if last || length < 0 {
		c.sendLocked()
	}
	if last {
		return st.takenLocked()
	}
	return nil
}

// headLocked queues the head of a response.
func (st *stream) headLocked(resp *exchange.Response, length int64, last bool) {
	c := st.conn
	code := resp.Code()
	if code == http.StatusUnauthorized || resp.Close || c.Last() {
		// kube-apiserver also makes clients without a valid credential leave.
		c.goAwayLocked()
	}
	header := slices.Clip(resp.Header)
	if says := resp.SaysLength(length); says != "" {
		header.Add("content-length", says)
	}
	if !resp.Header.Has("Date") {
		header.Add("date", time.Now().UTC().Format(http.TimeFormat))
	}
	st.answered = true
	c.writeHeadLocked(st, code, header, last && !c.full)
	if last && !st.localEnd {
		st.last = true
		c.readyLocked(st)
	}
}

// writeHeadLocked queues HEADERS, with CONTINUATION frames as needed. While the socket is full, the
// end of the stream waits for its turn, because a stream that is closed makes room for another one.
func (c *conn) writeHeadLocked(st *stream, code int, header exchange.Header, last bool) {
	c.encoded.Reset()
	_ = c.encoder.WriteField(hpack.HeaderField{Name: ":status", Value: strconv.Itoa(code)})
	for _, f := range header {
		name := lowerName(f.Name)
		switch name {
		case "connection", "keep-alive", "proxy-connection", "transfer-encoding", "upgrade":
			continue
		}
		_ = c.encoder.WriteField(hpack.HeaderField{Name: name, Value: f.Value, Sensitive: differs[name]})
	}
	block := c.encoded.Bytes()
	first := block[:min(len(block), c.frameSize)]
	block = block[len(first):]
	_ = c.framer.WriteHeaders(wire.HeadersFrameParam{
		StreamID: st.id, BlockFragment: first, EndStream: last, EndHeaders: len(block) == 0,
	})
	for len(block) > 0 {
		next := block[:min(len(block), c.frameSize)]
		block = block[len(next):]
		_ = c.framer.WriteContinuation(st.id, len(block) == 0, next)
	}
	if last {
		st.localEnd = true
		c.sentEndLocked(st)
	}
}

// differs are fields that differ in each response. They do not go into HPACK's table.
var differs = map[string]bool{
	"age": true, "audit-id": true, "content-length": true, "date": true, "x-kubernetes-resource-version": true,
}

// lowerNames holds the usual names of fields in lower case.
var lowerNames = func() map[string]string {
	names := make(map[string]string)
	for _, name := range []string{
		"Age", "Audit-Id", "Cache-Control", "Content-Encoding", "Content-Length", "Content-Type", "Date",
		"Retry-After", "Vary", "Warning", "X-Kubernetes-Pf-Flowschema-Uid", "X-Kubernetes-Pf-Prioritylevel-Uid",
		"X-Kubernetes-Resource-Version",
	} {
		names[name] = strings.ToLower(name)
	}
	return names
}()

func lowerName(name string) string {
	if lower, ok := lowerNames[name]; ok {
		return lower
	}
	return strings.ToLower(name)
}
