package proxytest_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// echo starts a backend that sends its name on each connection and then returns the bytes that it
// gets.
func echo(t *testing.T, name string) (address string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				_, _ = io.WriteString(conn, name)
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return l.Addr().String()
}

// relayed is a client's connection through a relay.
type relayed struct {
	t *testing.T
	*net.TCPConn
}

// connect connects to the relay and checks which backend answers.
func connect(t *testing.T, r *proxytest.Relay, backend string) relayed {
	t.Helper()
	conn, err := net.Dial("tcp", r.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := relayed{t, conn.(*net.TCPConn)}
	c.expect(backend)
	return c
}

func (c relayed) send(text string) {
	c.t.Helper()
	if _, err := io.WriteString(c, text); err != nil {
		c.t.Fatal(err)
	}
}

func (c relayed) expect(text string) {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(proxytest.Patience))
	got := make([]byte, len(text))
	if _, err := io.ReadFull(c, got); err != nil || string(got) != text {
		c.t.Fatalf("got %q, %v, want %q", got, err, text)
	}
}

// silent fails the test if anything arrives within a short time, or the connection ends.
func (c relayed) silent() {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(50 * time.Millisecond)) //testlint:allow deadline no machine is too slow for silence
	got := make([]byte, 100)
	if n, err := c.Read(got); !errors.Is(err, os.ErrDeadlineExceeded) {
		c.t.Fatalf("got %q, %v, want silence", got[:n], err)
	}
}

// ends fails the test unless the connection ends with this error.
func (c relayed) ends(want error) {
	c.t.Helper()
	_ = c.SetReadDeadline(time.Now().Add(proxytest.Patience))
	if _, err := c.Read(make([]byte, 100)); !errors.Is(err, want) {
		c.t.Errorf("ended with %v, want %v", err, want)
	}
}

// Each fault happens, and is counted. What is sent to a backend comes back from it.
func TestRelay(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, r, behind *proxytest.Relay, c relayed){
		"delay": func(t *testing.T, r, _ *proxytest.Relay, c relayed) {
			const delay = 50 * time.Millisecond
			r.Delay(delay)
			begin := time.Now()
			c.send("late")
			c.expect("late")
			if took := time.Since(begin); took < 2*delay || r.Delayed.Load() != 8 { //testlint:allow elapsed no machine is too fast
				t.Errorf("there and back took %s, want at least %s; %d bytes delayed", took, 2*delay, r.Delayed.Load())
			}
		},
		"hold": func(t *testing.T, r, _ *proxytest.Relay, c relayed) {
			r.Hold()
			c.send("held")
			awaitBytes(t, &r.Held, 4)
			c.silent()
			r.Release()
			c.expect("held")
		},
		"what is lost stays lost": func(t *testing.T, r, _ *proxytest.Relay, c relayed) {
			r.Drop(true)
			c.send("lost")
			awaitBytes(t, &r.Lost, 4)
			r.Drop(false)
			c.send("not lost")
			c.expect("not lost")
		},
		"an end is lost too": func(t *testing.T, r, behind *proxytest.Relay, c relayed) {
			r.Drop(true)
			if n := behind.Reset(); n != 1 {
				t.Errorf("%d connections, want 1", n)
			}
			c.silent()
			c.send("nobody is there")
			c.silent()
		},
		"forget": func(t *testing.T, r, _ *proxytest.Relay, c relayed) {
			if n, again := r.Forget(), r.Forget(); n != 1 || again != 0 {
				t.Errorf("%d connections, and %d to forget again; want 1 and 0", n, again)
			}
			c.send("nobody is there")
			c.silent()
			connect(t, r, "a")
		},
		"reset": func(t *testing.T, r, _ *proxytest.Relay, c relayed) {
			d := connect(t, r, "a")
			if n := r.Reset(); n != 2 {
				t.Errorf("%d connections, want 2", n)
			}
			c.ends(syscall.ECONNRESET)
			d.ends(syscall.ECONNRESET)
		},
		"open connections stay with their backend": func(t *testing.T, r, _ *proxytest.Relay, c relayed) {
			r.Redirect(echo(t, "b"))
			connect(t, r, "b")
			c.send("still a")
			c.expect("still a")
		},
		"the end of one side is the end of the other": func(t *testing.T, r, behind *proxytest.Relay, c relayed) {
			d := connect(t, r, "a")
			if err := c.CloseWrite(); err != nil {
				t.Fatal(err)
			}
			c.ends(io.EOF)
			behind.Reset()
			d.ends(syscall.ECONNRESET)
			behind.Redirect("127.0.0.1:1") // nobody listens there
			if conn, err := net.Dial("tcp", behind.Address()); err == nil {
				relayed{t, conn.(*net.TCPConn)}.ends(syscall.ECONNRESET)
			} else if !errors.Is(err, syscall.ECONNRESET) {
				t.Errorf("a refused connection began with %v", err)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			behind := proxytest.NewRelay(t, echo(t, "a"))
			r := proxytest.NewRelay(t, behind.Address())
			test(t, r, behind, connect(t, r, "a"))
		})
	}
}

// awaitBytes waits until a relay's count is n.
func awaitBytes(t *testing.T, count *atomic.Int64, n int64) {
	t.Helper()
	steady.Until(t, "bytes", func() error {
		if got := count.Load(); got != n {
			return fmt.Errorf("%d, want %d", got, n)
		}
		return nil
	})
}
