package websocket

// Progress follows a server's frames while they are passed through. It looks at headers only. The
// zero value stands before the first frame. One goroutine uses it at a time.
type Progress struct {
	header header
	left   uint64 // bytes of the payload that have not passed
	closed bool
}

// Pass notes that p has passed.
func (g *Progress) Pass(p []byte) {
	for len(p) > 0 {
		if g.left > 0 {
			n := min(uint64(len(p)), g.left)
			p, g.left = p[n:], g.left-n
			continue
		}
		rest, whole := g.header.take(p)
		if p = rest; whole {
			g.closed = g.closed || g.header.opcode() == opClose
			g.left = g.header.length()
			g.header = header{}
		}
	}
}

// MayClose reports whether a CLOSE frame may follow what has passed: it ends with a whole frame, and
// no CLOSE has passed.
func (g *Progress) MayClose() bool { return g.left == 0 && g.header.n == 0 && !g.closed }
