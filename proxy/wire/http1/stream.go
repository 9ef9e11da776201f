package http1

import (
	"github.com/valyala/fasthttp"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// stream is a response without end. It owns its connection until it ends, and has no goroutine.
type stream struct {
	conn     *hijacked
	source   exchange.Stream
	messages *exchange.Messages // nil for a body of HTTP
	last     bool               // the connection carries no further request
}

// stream takes over the connection of ctx and writes the stream of x there.
func (s *Server) stream(ctx *fasthttp.RequestCtx, x *exchange.Exchange) {
	st, head := newStream(x)
	s.hijack(ctx, x, func(h *hijacked) { st.run(h, head) })
}

// newStream returns the stream of x, and the bytes before its events.
func newStream(x *exchange.Exchange) (st *stream, head []byte) {
	r := &x.Response
	f := framed{chunked: true, length: -1, keepAlive: !x.Close, http11: true, warningsFirst: true}
	head = append(appendHead(nil, r, f), r.First...)
	return &stream{source: r.Stream, messages: r.Messages, last: x.Close || r.Bare}, head
}

// run begins the stream on a connection, or closes the connection.
func (st *stream) run(h *hijacked, head []byte) {
	st.conn = h
	if !st.begin(head) {
		h.Close()
	}
}

// begin writes the head and hands over the sink. It does not wait for the stream to end.
func (st *stream) begin(head []byte) (began bool) {
	defer func() {
		if !began { // the client is gone, or begin panics
			st.source.End(fanout.Gone, false)
		}
	}()
	server := st.conn.server
	events := downstream.SinkEvents{Gone: st.source.Gone, Drop: st.conn.Close, Keep: st.source.Keep, Evict: st.source.Evict, Ended: st.end}
	if st.messages != nil {
		sink := downstream.NewSink(st.conn.conn, server.Poller, "", server.Guard, events)
		w := &webSocket{messages: messages{connection: sink, form: *st.messages}, gone: st.source.Gone}
		kept := st.conn.kept // nobody is in waitRead, and no request follows
		st.conn.kept = nil
		return w.begin(head, kept, st.source) == nil
	}
	sink := downstream.NewSink(st.conn.conn, server.Poller, framing.LastChunk, server.Guard, events)
	if sink.Begin(head, func() { st.conn.waitRead(st.source.Gone) }) != nil {
		return false
	}
	st.source.Begin(sink)
	return true
}

// end is called after the stream's last write. If the stream is complete, the connection can carry
// another request.
func (st *stream) end(reason fanout.Reason, complete bool) {
	st.source.End(reason, complete)
	if complete && !st.last {
		st.conn.resume()
	} else {
		st.conn.Close()
	}
}
