package http1

import (
	"errors"
	"io"
	"net"
	"os"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// zeros is a body without end.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) { return len(p), nil }
func (zeros) Close() error               { return nil }

// trickle reads a little each second, until the test ends.
func trickle(c net.Conn) {
	for buf := make([]byte, 100); ; time.Sleep(time.Second) {
		if _, err := c.Read(buf); err != nil {
			return
		}
	}
}

// A client that reads slowly and steadily is cut when its response is due, whoever writes: fasthttp,
// or the responder of a connection that has been taken over.
func TestSlowReader(t *testing.T) {
	const due = 20 * time.Second
	writers := map[string]func(net.Conn, time.Time) error{
		"fasthttp": func(c net.Conn, by time.Time) error {
			kept := withKept(c, nil).(*keptConn)
			kept.due = by
			b := &responseBody{ReadCloser: zeros{}, length: -1, conn: kept}
			_, err := b.WriteTo(kept)
			return err
		},
		"taken over": func(c net.Conn, by time.Time) error {
			r := &responder{conn: &hijacked{conn: c}, due: by}
			return r.copy(zeros{}, -1, true)
		},
	}
	for name, write := range writers {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c, client := net.Pipe()
				left := make(chan struct{})
				go func() { trickle(client); close(left) }()
				began := time.Now()
				err := write(c, began.Add(due))
				if took := time.Since(began); !errors.Is(err, os.ErrDeadlineExceeded) || took != due {
					t.Errorf("ended after %s with %v, want %s and a deadline", took, err, due)
				}
				_ = c.Close()
				<-left
			})
		})
	}
}

// The time of one response does not limit what is written for the next one, and no deadline stays
// none.
func TestDueOfOneResponse(t *testing.T) {
	var noted deadlineConn
	now := time.Now()
	never, later := new(exchange.Exchange).WriteBy(), now.Add(time.Hour)
	for _, c := range []struct{ due, set, want time.Time }{{now, later, now}, {now, never, never}, {never, later, later}} {
		kept := keptOf(withKept(&noted, nil))
		kept.due = c.due
		if _ = kept.SetWriteDeadline(c.set); !noted.at.Equal(c.want) {
			t.Errorf("%+v: %s", c, noted.at)
		}
	}
}

// What a client has sent ahead is read first, whatever the size of the reads.
func TestKeptBytes(t *testing.T) {
	c, client := net.Pipe()
	defer c.Close()
	go func() { _, _ = client.Write([]byte("later")); _ = client.Close() }()
	if got, err := io.ReadAll(iotest.OneByteReader(withKept(c, []byte("early")))); string(got) != "earlylater" || err != nil {
		t.Errorf("got %q, %v", got, err)
	}
}

// deadlineConn notes the deadline of writes.
type deadlineConn struct {
	net.Conn
	at time.Time
}

func (c *deadlineConn) SetWriteDeadline(at time.Time) error {
	c.at = at
	return nil
}
