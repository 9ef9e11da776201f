package downstream

import (
	"bufio"
	"crypto/tls"
	"errors"
	"io"
	"net"
	"sync"

	"github.com/watchfan/watchfan/proxy/exchange"
)

// WriteSlices writes body, whose outer slice it may change, to a connection as the listener accepted
// it. What takes long of sealing it for TLS is done in turn.
func WriteSlices(conn net.Conn, body exchange.BodySlices, turn exchange.Turn) (n int64, err error) {
	t, ok := conn.(*tls.Conn)
	if !ok {
		vector := net.Buffers(body) // used up
		return vector.WriteTo(conn)
	}
	gather, ok := t.NetConn().(*gatherConn)
	if !ok || body.Size() <= sealedAtOnce {
		return writeJoined(t, body)
	}
	return writeJoined(&sealer{t, gather, turn}, body)
}

// writeJoined writes slices through a buffer of the size of several TLS records.
func writeJoined(w io.Writer, slices exchange.BodySlices) (n int64, err error) {
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
	_, err := s.tls.Write(p)
	sealed := s.gather.sealedBytes()
	if err == nil && sealed == nil {
		err = errors.New("TLS has sealed nothing")
	}
	return sealed, err
}
