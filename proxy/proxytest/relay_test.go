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

// ended returns the error with which the connection ends.
func (c relayed) ended() error {
	_ = c.SetReadDeadline(time.Now().Add(proxytest.Patience))
	_, err := c.Read(make([]byte, 100))
	return err
}

// awaitBytes waits until a relay's count is n.
func awaitBytes(t *testing.T, what string, count *atomic.Int64, n int64) {
	t.Helper()
	steady.Until(t, "byte "+what, func() error {
		if got := count.Load(); got != n {
			return fmt.Errorf("%d, want %d", got, n)
		}
		return nil
	})
}

func TestRelayDelay(t *testing.T) {
	t.Parallel()
	r := proxytest.NewRelay(t, echo(t, "a"))
	c := connect(t, r, "a")
	const delay = 50 * time.Millisecond
	r.Delay(delay)
	begin := time.Now()
	c.send("late")
	c.expect("late")
	if took := time.Since(begin); took < 2*delay { //testlint:allow elapsed no machine is too fast
		t.Errorf("there and back took %s, want at least %s", took, 2*delay)
	}
	if n := r.Delayed.Load(); n != 8 {
		t.Errorf("%d bytes delayed, want 8", n)
	}
}

func TestRelayHold(t *testing.T) {
	t.Parallel()
	r := proxytest.NewRelay(t, echo(t, "a"))
	c := connect(t, r, "a")
	r.Hold()
	c.send("held")
	awaitBytes(t, "held", &r.Held, 4)
	c.silent()
	r.Release()
	c.expect("held")
}

// Bytes that were lost stay lost, and later bytes pass.
func TestRelayDrop(t *testing.T) {
	t.Parallel()
	r := proxytest.NewRelay(t, echo(t, "a"))
	c := connect(t, r, "a")
	r.Drop(true)
	c.send("lost")
	awaitBytes(t, "lost", &r.Lost, 4)
	r.Drop(false)
	c.send("not lost")
	c.expect("not lost")
}

// An end that comes while bytes are lost is lost too.
func TestRelayDropsEnds(t *testing.T) {
	t.Parallel()
	front := proxytest.NewRelay(t, echo(t, "a"))
	r := proxytest.NewRelay(t, front.Address())
	c := connect(t, r, "a")
	r.Drop(true)
	if n := front.Reset(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	c.silent()
	c.send("nobody is there")
	c.silent()
}

func TestRelayForget(t *testing.T) {
	t.Parallel()
	r := proxytest.NewRelay(t, echo(t, "a"))
	c := connect(t, r, "a")
	if n := r.Forget(); n != 1 {
		t.Errorf("%d connections, want 1", n)
	}
	c.send("nobody is there")
	c.silent()
	if n := r.Forget(); n != 0 {
		t.Errorf("%d connections to forget again, want none", n)
	}
	connect(t, r, "a")
}

func TestRelayReset(t *testing.T) {
	t.Parallel()
	r := proxytest.NewRelay(t, echo(t, "a"))
	c, d := connect(t, r, "a"), connect(t, r, "a")
	if n := r.Reset(); n != 2 {
		t.Errorf("%d connections, want 2", n)
	}
	for _, conn := range []relayed{c, d} {
		if err := conn.ended(); !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("ended with %v, want a reset", err)
		}
	}
}

// Open connections stay with their backend.
func TestRelayRedirect(t *testing.T) {
	t.Parallel()
	r := proxytest.NewRelay(t, echo(t, "a"))
	c := connect(t, r, "a")
	r.Redirect(echo(t, "b"))
	connect(t, r, "b")
	c.send("still a")
	c.expect("still a")
}

// The end of one side is the end of the other, in the same way.
func TestRelayEnds(t *testing.T) {
	t.Parallel()
	backend := proxytest.NewRelay(t, echo(t, "a"))
	r := proxytest.NewRelay(t, backend.Address())
	c, d := connect(t, r, "a"), connect(t, r, "a")
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if err := c.ended(); err != io.EOF {
		t.Errorf("ended with %v, want EOF", err)
	}
	backend.Reset()
	if err := d.ended(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("ended with %v, want a reset", err)
	}
	backend.Redirect("127.0.0.1:1") // nobody listens there
	if conn, err := net.Dial("tcp", backend.Address()); err != nil {
		if !errors.Is(err, syscall.ECONNRESET) {
			t.Errorf("a refused connection began with %v", err)
		}
	} else if err := (relayed{t, conn.(*net.TCPConn)}).ended(); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("a refused connection ended with %v, want a reset", err)
	}
}
