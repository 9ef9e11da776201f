package http1

import (
	"bytes"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// fasthttp has a buffer of one size for the head of each connection's request, and nearly all heads
// have a few KiB. So there is a server for each of these sizes. What has been read of a head that is
// longer is kept, see [keptConn], and the next server reads it again. A connection that needs the second
// stays there. One that needs the third closes after its request. Both count for the connection's
// payer as long as they are there.
var headSizes = [...]int{16 << 10, 64 << 10, largeHead}

// largeHead is net/http's limit, as kube-apiserver has it: MaxHeaderBytes and 4 KiB more.
const largeHead = exchange.MaxHeaderBytes + 4<<10

// serveLonger serves the request on c whose head is too long for the server that has read it, and
// reports whether it did. Then c belongs to others, or is closed.
func (s *Server) serveLonger(c net.Conn) bool {
	from := keptOf(c)
	if from.size+1 == len(headSizes) || len(from.head) < headSizes[from.size] {
		return false // or the beginning is not known, because the client had sent it early
	}
	client := s.Conns.Serving(from.Conn)
	entry := s.Ledger.Open(client.Payer(), account.Heads, client.Break)
	defer entry.Close()
	if !entry.Set(heldByHead(from.size + 1)) {
		s.Held.Inc()
		return false
	}
	again := withKept(from.Conn, bytes.Clone(from.head))
	next := keptOf(again)
	next.size, next.entry, next.by = from.size+1, entry, from.deadline
	from.taken = true
	from.endHead()
	_ = s.fast[next.size].ServeConn(again)
	return true
}

// heldByHead is what a connection takes at the server for a size, beside what all take: its buffer, and
// what has been kept for it twice.
func heldByHead(size int) int64 { return int64(headSizes[size] + 2*headSizes[size-1]) }

// heads holds memory for the beginnings of usual heads.
var heads = sync.Pool{New: func() any { return new(usualHead) }}

type usualHead [16 << 10]byte

// note keeps what has been read of a head.
func (c *keptConn) note(p []byte) {
	if c.past || len(p) == 0 || c.size+1 == len(headSizes) {
		return
	}
	if c.head == nil && c.size == 0 {
		c.head = heads.Get().(*usualHead)[:0]
	}
	c.head = append(c.head, p[:min(len(p), headSizes[c.size]-len(c.head))]...)
}

// beginHead is called when the next head may come, and endHead when one has been read.
func (c *keptConn) beginHead() { c.past, c.again, c.by = false, true, time.Time{} }

// headBegun is called when something of a head has come. If nothing has been read for it, it has come with
// the request before, and what is read now may be a body.
func (c *keptConn) headBegun() { c.past = c.past || c.again && c.head == nil }

func (c *keptConn) endHead() {
	if c.head != nil && c.size == 0 {
		heads.Put((*usualHead)(c.head[:len(usualHead{})]))
	}
	c.past, c.head = true, nil
}

// errBareLineFeed is the error of a head whose last lines end in a line feed alone. fasthttp waits for
// a carriage return.
var errBareLineFeed = errors.New(bareLineFeed.Message)

// endedBare reports whether what has been read of a head has an end for servers that take a line feed
// alone, and none for fasthttp.
func (c *keptConn) endedBare() bool {
	if c.past || len(c.head) == 0 {
		return false
	}
	return (bytes.Contains(c.head, []byte("\n\n")) || bytes.Contains(c.head, []byte("\n\r\n"))) &&
		!bytes.Contains(c.head, []byte("\r\n\r\n"))
}
