package downstream

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"log/slog"
	"net"
	"slices"
	"sync"

	"github.com/valyala/fasthttp"

	"github.com/watchfan/watchfan/proxy/request"
)

// BodySlices is a response body of shared slices.
type BodySlices [][]byte

func (b BodySlices) Size() int {
	n := 0
	for _, s := range b {
		n += len(s)
	}
	return n
}

// SetBody makes b the response's body. What takes long of sealing it for TLS is done in turn.
func SetBody(ctx *fasthttp.RequestCtx, b BodySlices, turn workTurn, log *slog.Logger) {
	size := b.Size()
	if size <= copiedBody {
		ctx.SetBody(slices.Concat(b...))
		return
	}
	ctx.Response.SetBodyStream(&bodyStream{conn: ctx.Conn(), slices: b, turn: turn, log: log}, size)
}

// workTurn is one client's turn at work that takes a processor. It is not held while we wait for
// the client.
type workTurn interface {
	// Resume waits for the turn. An error says that the response cannot go on.
	Resume() error
	// Give ends the turn.
	Give()
}

// copiedBody is the size up to which a body is copied, to leave in one write with its head.
const copiedBody = 16 << 10

// bodyStream is a body of shared slices as fasthttp takes it. It writes itself
// (fasthttp.BodyWriterTo), past fasthttp's buffer, and is never read.
type bodyStream struct {
	conn   net.Conn
	slices BodySlices
	turn   workTurn // not held
	log    *slog.Logger
}

func (s *bodyStream) SupportsBodyWriteTo() bool { return true }

func (s *bodyStream) WriteTo(w io.Writer) (n int64, err error) {
	defer request.Caught(s.log, "response body", func() { err = request.ErrPanicked }) // fasthttp closes the connection
	if b, ok := w.(*bufio.Writer); ok {
		if err := b.Flush(); err != nil {
			return 0, err
		}
		w = Accepted(s.conn)
	}
	t, ok := w.(*tls.Conn)
	if !ok {
		vector := net.Buffers(s.slices) // ours, and used up
		return vector.WriteTo(w)
	}
	gather, ok := t.NetConn().(*gatherConn)
	if !ok || s.slices.Size() <= sealedAtOnce {
		return writeJoined(t, s.slices)
	}
	return writeJoined(&sealer{t, gather, s.turn}, s.slices)
}

func (s *bodyStream) Read([]byte) (int, error) {
	return 0, errors.New("a body of slices is written, not read")
}

// writeJoined writes slices through a buffer of the size of several TLS records.
func writeJoined(w io.Writer, slices BodySlices) (n int64, err error) {
	buf := bodyBuffers.Get().(*bufio.Writer)
	defer bodyBuffers.Put(buf)
	buf.Reset(w)
	for _, s := range slices {
		m, err := buf.Write(s)
		n += int64(m)
		if err != nil {
			return n, err
		}
	}
	return n, buf.Flush()
}

// sealedAtOnce is how much is sealed at a time, which takes some 0.2 ms. A shorter body is sealed
// without a turn.
const sealedAtOnce = 256 << 10

var bodyBuffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, sealedAtOnce) }}

// sealer seals what is written during a turn. It writes the result to the client without one,
// however long that takes.
type sealer struct {
	tls    *tls.Conn
	gather *gatherConn
	turn   workTurn
}

func (s *sealer) Write(p []byte) (int, error) {
	sealed, err := s.seal(p)
	if err != nil {
		return 0, err
	}
	defer giveBack(sealed)
	if _, err := s.gather.TCPConn.Write(*sealed); err != nil {
		return 0, err
	}
	return len(p), nil
}

func (s *sealer) seal(p []byte) (*[]byte, error) {
	if err := s.turn.Resume(); err != nil {
		return nil, err
	}
	defer s.turn.Give()
	s.gather.hold()
	_, err := s.tls.Write(p)
	sealed := s.gather.sealedBytes()
	if err == nil && sealed == nil {
		err = errors.New("TLS has sealed nothing")
	}
	return sealed, err
}
