package websocket

// maxMessage is the longest frame that kube-apiserver reads (golang.org/x/net/websocket,
// DefaultMaxPayloadBytes). It ends the connection of a client that sends a longer one.
const maxMessage = 32 << 20

// Receiver reads what a client sends during a watch, and tells the answers. It keeps no message: an
// open WebSocket costs the 48 bytes of its Receiver, and up to 125 more within a ping. One goroutine
// uses it at a time. The zero value is ready.
//
//	the client sends                            the answer
//	ping                                        a pong with the first 125 bytes of its payload
//	close                                       CLOSE 1000, the end
//	a frame that is not masked                  CLOSE 1002, CLOSE 1000, the end
//	a frame of more than 32 MiB, not a ping     CLOSE 1000, the end
//	any other frame                             none
type Receiver struct {
	header header
	inside bool   // the header is complete
	left   uint64 // bytes of the payload that have not come
	ping   []byte // payload of a ping that has not come whole; nil for none
}

// Receive reads p, the next bytes of the client, and appends the answers to dst: whole frames, in
// their order. over reports that the connection ends behind them; Receive must not be called again.
// The answers are at most eight bytes longer than the client's frames.
func (r *Receiver) Receive(dst, p []byte) (answers []byte, over bool) {
	for {
		if !r.inside {
			if p, r.inside = r.header.take(p); !r.inside {
				return dst, false
			}
			if last := r.begin(); last != "" {
				return append(dst, last...), true
			}
		}
		n := min(uint64(len(p)), r.left)
		r.payload(p[:n])
		p, r.left = p[n:], r.left-n
		if r.left > 0 {
			return dst, false
		}
		if r.header.opcode() == opPing {
			dst = append(appendHeader(dst, opPong, len(r.ping)), r.ping...)
		}
		*r = Receiver{}
	}
}

// begin reads a complete header. It returns the last answer if the frame ends the connection.
func (r *Receiver) begin() (last string) {
	r.left = r.header.length()
	op := r.header.opcode()
	switch {
	case !r.header.masked():
		return closeProtocolError + CloseNormal
	case op == opClose, r.left > maxMessage && op != opPing && op != opPong:
		return CloseNormal
	}
	return ""
}

// payload reads bytes of a frame's payload, and keeps those of a ping, unmasked.
func (r *Receiver) payload(p []byte) {
	if r.header.opcode() != opPing {
		return
	}
	key := r.header.key()
	for _, c := range p[:min(len(p), maxControl-len(r.ping))] {
		r.ping = append(r.ping, c^key[len(r.ping)%4])
	}
}

// Progress follows a server's frames while they are passed through. It looks at headers, and at how
// messages begin. The zero value stands before the first frame. One goroutine uses it at a time.
type Progress struct {
	header header // of the next frame
	left   uint64 // bytes of the payload that have not passed
	closed bool

	message bool            // the payload is a whole message
	start   [startSize]byte // of the message
	begun   int             // bytes of start
}

// startSize is how many bytes Progress tells of a message.
const startSize = 20

// Pass notes that p has passed. It calls passed for each message of which the last byte has passed, with
// how it begins; "" for a message in several frames, of which nothing more is known.
func (g *Progress) Pass(p []byte, passed func(start string)) {
	for len(p) > 0 {
		if g.left == 0 {
			rest, whole := g.header.take(p)
			if p = rest; whole {
				g.begin(passed)
			}
			continue
		}
		n := min(uint64(len(p)), g.left)
		if g.message {
			g.begun += copy(g.start[g.begun:], p[:n])
		}
		p, g.left = p[n:], g.left-n
		if g.left == 0 && g.message {
			passed(string(g.start[:g.begun]))
		}
	}
}

// begin begins a frame, whose header has passed.
func (g *Progress) begin(passed func(start string)) {
	op, final := g.header.opcode(), g.header.bytes[0]&finalBit != 0
	g.closed = g.closed || op == opClose
	g.left, g.begun = g.header.length(), 0
	g.message = final && (op == opText || op == opBinary)
	if op < opClose && (!g.message || g.left == 0) {
		passed("")
	}
	g.header = header{}
}

// MayClose reports whether a CLOSE frame may follow what has passed: it ends with a whole frame, and
// no CLOSE has passed.
func (g *Progress) MayClose() bool { return g.left == 0 && g.header.n == 0 && !g.closed }
