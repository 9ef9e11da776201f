package http1

import (
	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// stream is a response without end. It owns its connection until it ends, and has no goroutine. It
// implements [downstream.Watch].
type stream struct {
	exchange.Stream // the source
	conn            *hijacked
	last            bool // the connection carries no further request
}

// begin begins the stream of x on a connection, or closes the connection. It does not wait for the
// stream to end. After a panic, who catches it closes the connection.
func begin(h *hijacked, x *exchange.Exchange) {
	r := &x.Response
	st := &stream{Stream: r.Stream, conn: h, last: x.Close || r.Bare}
	began := false
	defer func() {
		if !began { // the client is gone, or what follows panics
			st.Stream.End(fanout.Gone, false)
		}
	}()
	f := framed{chunked: true, length: -1, keepAlive: !x.Close, http11: true, warningsFirst: true}
	if began = st.begin(append(appendHead(nil, r, f), r.First...), r.Messages); !began {
		h.Close()
	}
}

// begin writes the head and hands over the sink, of messages if they are not nil.
func (st *stream) begin(head []byte, form *exchange.Messages) (began bool) {
	h, server := st.conn, st.conn.server
	if form != nil {
		sink := downstream.NewSink(h.conn, server.Poller, "", server.Guard, st)
		w := &webSocket{messages: messages{connection: sink, form: *form}, gone: st.Gone}
		kept := h.kept // nobody is in waitRead, and no request follows
		h.kept = nil
		return w.begin(head, kept, st.Stream) == nil
	}
	sink := downstream.NewSink(h.conn, server.Poller, framing.LastChunk, server.Guard, st)
	if sink.Begin(head, func() { h.waitRead(st.Gone) }) != nil {
		return false
	}
	st.Stream.Begin(sink)
	return true
}

// End is called after the stream's last write. If the stream is complete, the connection can carry
// another request.
func (st *stream) End(reason fanout.Reason, complete bool) {
	st.Stream.End(reason, complete)
	if complete && !st.last {
		st.conn.resume()
	} else {
		st.Drop()
	}
}

func (st *stream) Drop() { st.conn.Close() }
