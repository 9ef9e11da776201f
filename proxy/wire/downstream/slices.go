package downstream

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// WriteSlices writes body to a connection as the listener accepted it. It may change body's outer
// slice. A long body is sealed for TLS during turn, if there is one: a refusal that names what the client has
// sent may be long too.
func WriteSlices(conn net.Conn, body exchange.BodySlices, turn exchange.Turn) (n int64, err error) {
	long := body.Size() > SealedAtOnce
	vector := net.Buffers(body) // WriteTo uses it up
	switch t, gather := secured(conn); {
	case t == nil:
		return vector.WriteTo(conn)
	case gather == nil || turn == nil || !long:
		return writeJoined(t, vector)
	default:
		return writeJoined(&sealer{t, gather, turn}, vector)
	}
}

// writeJoined writes slices through a buffer that holds several TLS records.
func writeJoined(w io.Writer, slices net.Buffers) (n int64, err error) {
	buf := bodyBuffers.Get().(*bufio.Writer)
	defer bodyBuffers.Put(buf)
	buf.Reset(w)
	if n, err = slices.WriteTo(buf); err == nil {
		err = buf.Flush()
	}
	return n, err
}

// SealedAtOnce is the number of bytes sealed at a time, which takes some 0.2 ms. A shorter body is
// sealed without a turn. A SharedWriter should be given as many before each Flush.
const SealedAtOnce = 256 << 10

var bodyBuffers = sync.Pool{New: func() any { return bufio.NewWriterSize(nil, SealedAtOnce) }}

// sealer seals during a turn. It writes the sealed records to the client outside the turn, because
// that may take long.
type sealer struct {
	tls    *tls.Conn
	gather *gatherConn
	turn   exchange.Turn
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
	err := s.gather.seal(s.tls, p)
	sealed := s.gather.sealedBytes()
	if err == nil && sealed == nil {
		err = errors.New("TLS has sealed nothing")
	}
	return sealed, err
}
