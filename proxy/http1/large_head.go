package http1

import (
	"bytes"
	"errors"
	"net"
	"sync"

	"github.com/valyala/fasthttp"

	"github.com/watchfan/watchfan/proxy/account"
	"github.com/watchfan/watchfan/proxy/exchange"
)

// fasthttp keeps a buffer for the head of each connection's request, and nearly all heads have a few
// KiB. So there are two servers: the usual one reads heads of up to smallHead bytes. A longer one is
// read by a second, for this one request, after which the connection closes. What has been read of
// it is kept for that, see [replay]. The second buffer counts for the client's address.
const (
	smallHead = 16 << 10
	// largeHead is net/http's limit, as kube-apiserver has it: MaxHeaderBytes and 4 KiB more.
	largeHead = exchange.MaxHeaderBytes + 4<<10
)

// newLargeServer returns the second server.
func (s *Server) newLargeServer() *fasthttp.Server {
	large := s.newFastServer()
	large.ReadBufferSize, large.DisableKeepalive = largeHead, true
	return large
}

// serveLarge serves the request on c whose head is longer than smallHead, and reports whether it did.
// Then c belongs to others, or is closed.
func (s *Server) serveLarge(c net.Conn) bool {
	from := replayOf(c)
	if from == nil || from.large || len(from.head) < smallHead {
		return false // or the beginning is not known, because the client had sent it early
	}
	conn := accepted(c)
	address := account.Source{Name: account.AddressOf(conn.RemoteAddr()).Addr().String(), Stranger: true}
	entry := s.ledger.Open(address, account.Heads, s.conns.Serving(conn).Break)
	defer entry.Close()
	if !entry.Set(largeHead) {
		return false
	}
	again := withKept(conn, bytes.Clone(from.head))
	replayOf(again).large = true
	from.taken = true
	from.endHead()
	_ = s.large.ServeConn(again)
	return true
}

// heads holds memory for the beginnings of heads.
var heads = sync.Pool{New: func() any { return new([smallHead]byte) }}

// note keeps what has been read of a head.
func (r *replay) note(p []byte) {
	if r.large || r.past || len(p) == 0 {
		return
	}
	if r.head == nil {
		r.head = heads.Get().(*[smallHead]byte)[:0]
	}
	r.head = append(r.head, p[:min(len(p), smallHead-len(r.head))]...)
}

// beginHead is called when the next head may come, and endHead when one has been read.
func (r *replay) beginHead() { r.past = false }

func (r *replay) endHead() {
	if r.past = true; r.head != nil {
		heads.Put((*[smallHead]byte)(r.head[:smallHead]))
		r.head = nil
	}
}

// errBareLineFeed is the error of a head whose last lines end in a line feed alone. fasthttp waits for
// a carriage return.
var errBareLineFeed = errors.New("a line of the request's header does not end in CRLF")

// endedBare reports whether what has been read of a head has an end for servers that take a line feed
// alone, and none for fasthttp.
func (r *replay) endedBare() bool {
	if r.past || len(r.head) == 0 {
		return false
	}
	return (bytes.Contains(r.head, []byte("\n\n")) || bytes.Contains(r.head, []byte("\n\r\n"))) &&
		!bytes.Contains(r.head, []byte("\r\n\r\n"))
}
