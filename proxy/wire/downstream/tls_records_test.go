package downstream

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/sha256"
	"crypto/tls"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"io"
	"net"
	"os"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/fanout"
)

// tlsRecords writes the records of a client in TLS 1.3, with AES-128-GCM, past crypto/tls. That asks
// for new keys only after very many records (RFC 8446, section 7).
type tlsRecords struct {
	net.Conn
	secret   []byte
	sequence uint64 // of the next record under secret
}

// recordsOf returns a client's records on a connection, behind those of crypto/tls.
func recordsOf(t *testing.T, served net.Conn, tap *tapConn, keys string) *tlsRecords {
	t.Helper()
	if suite := served.(*tls.Conn).ConnectionState().CipherSuite; suite != tls.TLS_AES_128_GCM_SHA256 {
		t.Skipf("the cipher suite is %s", tls.CipherSuiteName(suite))
	}
	_, line, _ := strings.Cut(keys, "CLIENT_TRAFFIC_SECRET_0 ")
	secret, err := hex.DecodeString(strings.Fields(line)[1])
	if err != nil {
		t.Fatal(err)
	}
	return &tlsRecords{Conn: tap, secret: secret}
}

// expand is HKDF-Expand-Label.
func (r *tlsRecords) expand(label string, n int) []byte {
	label = "tls13 " + label
	info := append([]byte{byte(n >> 8), byte(n), byte(len(label))}, label...)
	out, err := hkdf.Expand(sha256.New, r.secret, string(append(info, 0)), n)
	if err != nil {
		panic(err)
	}
	return out
}

// write writes a record.
func (r *tlsRecords) write(contentType byte, content ...byte) error {
	block, err := aes.NewCipher(r.expand("key", 16))
	if err != nil {
		return err
	}
	gcm, err := cipher.NewGCM(block)
	if err != nil {
		return err
	}
	nonce := r.expand("iv", gcm.NonceSize())
	end := nonce[len(nonce)-8:]
	binary.BigEndian.PutUint64(end, binary.BigEndian.Uint64(end)^r.sequence)
	r.sequence++
	content = append(content, contentType)
	head := binary.BigEndian.AppendUint16([]byte{23, 3, 3}, uint16(len(content)+gcm.Overhead()))
	_, err = r.Conn.Write(gcm.Seal(head, nonce, content, head))
	return err
}

// askForKey asks for a new key of the server's, and begins one of its own.
func (r *tlsRecords) askForKey() error {
	err := r.write(22, 24, 0, 0, 1, 1)
	r.secret, r.sequence = r.expand("traffic upd", sha256.Size), 0
	return err
}

// A client that keeps asking for new keys while it is sent nothing can't make the server hold any
// number of answers. Its connection breaks.
func TestManyKeys(t *testing.T) {
	var secrets bytes.Buffer
	s, served, _, tap := sinkPair(t, sinkWay{secure: true, polled: true, keys: &secrets})
	records := recordsOf(t, served, tap, secrets.String())
	left := make(chan error, 1)
	var read func()
	read = func() {
		for {
			_, err := s.Read(make([]byte, 16))
			if errors.Is(err, os.ErrDeadlineExceeded) {
				s.ReadAgain(read)
				return
			}
			if err != nil {
				left <- err
				return
			}
		}
	}
	if err := s.Begin([]byte("head"), read); err != nil {
		t.Fatal(err)
	}
	var err error
	sent := 0
	for ; sent < 10_000 && err == nil && len(left) == 0; sent++ {
		if sent%10 == 9 { // crypto/tls bounds what comes without data
			err = records.write(23, 'x')
		}
		err = errors.Join(err, records.askForKey())
	}
	if err == nil {
		_ = tap.Conn.(*net.TCPConn).CloseWrite()
	}
	if end := <-left; end == io.EOF {
		t.Errorf("%d new keys are accepted", sent)
	}
	s.gather.mu.Lock()
	if n := len(*s.gather.sealed); n > maxAnswers {
		t.Errorf("%d bytes are held, want at most %d", n, maxAnswers)
	}
	s.gather.mu.Unlock()
	s.End(fanout.Gone, false)
	<-s.endc
	_ = served.Close()
}
