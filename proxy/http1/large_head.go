package http1

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/watchfan/watchfan/proxy/account"
	"github.com/watchfan/watchfan/proxy/exchange"
)

// fasthttp has a buffer of one size for the head of each connection's request, and nearly all heads
// have a few KiB. So there is a server for each of these sizes. What has been read of a head that is
// longer is kept, see [replay], and the next server reads it again. A connection that needs the second
// stays there. One that needs the third closes after its request. Both count for the connection's
// payer as long as they are there.
var headSizes = [...]int{16 << 10, 64 << 10, largeHead}

// largeHead is net/http's limit, as kube-apiserver has it: MaxHeaderBytes and 4 KiB more.
const largeHead = exchange.MaxHeaderBytes + 4<<10

// newFastServers returns the servers for the sizes.
func (s *Server) newFastServers() (all [len(headSizes)]*fasthttp.Server) {
	for i, size := range headSizes {
		all[i] = s.newFastServer()
		all[i].ReadBufferSize = size // also the limit of a request's head
		all[i].DisableKeepalive = size == largeHead
	}
	return all
}

// serveLonger serves the request on c whose head is too long for the server that has read it, and
// reports whether it did. Then c belongs to others, or is closed.
func (s *Server) serveLonger(c net.Conn) bool {
	from := replayOf(c)
	if from == nil || from.size+1 == len(headSizes) || len(from.head) < headSizes[from.size] {
		return false // or the beginning is not known, because the client had sent it early
	}
	conn := accepted(c)
	client := s.conns.Serving(conn)
	entry := s.ledger.Open(client.Payer(), account.Heads, client.Break)
	defer entry.Close()
	if !entry.Set(heldByHead(from.size + 1)) {
		s.metrics.held.Inc()
		return false
	}
	again := withKept(conn, bytes.Clone(from.head))
	r := replayOf(again)
	r.size, r.entry, r.by = from.size+1, entry, from.deadline
	from.taken = true
	from.endHead()
	_ = s.fast[from.size+1].ServeConn(again)
	return true
}

// heldByHead is what a connection takes at the server for a size, beside what all take: its buffer, and
// what has been kept for it twice.
func heldByHead(size int) int64 { return int64(headSizes[size] + 2*headSizes[size-1]) }

// heads holds memory for the beginnings of usual heads.
var heads = sync.Pool{New: func() any { return new(usualHead) }}

type usualHead [16 << 10]byte

// note keeps what has been read of a head.
func (r *replay) note(p []byte) {
	if r.past || len(p) == 0 || r.size+1 == len(headSizes) {
		return
	}
	if r.head == nil && r.size == 0 {
		r.head = heads.Get().(*usualHead)[:0]
	}
	r.head = append(r.head, p[:min(len(p), headSizes[r.size]-len(r.head))]...)
}

// beginHead is called when the next head may come, and endHead when one has been read.
func (r *replay) beginHead() { r.past, r.by = false, time.Time{} }

func (r *replay) endHead() {
	if r.head != nil && r.size == 0 {
		heads.Put((*usualHead)(r.head[:len(usualHead{})]))
	}
	r.past, r.head = true, nil
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
