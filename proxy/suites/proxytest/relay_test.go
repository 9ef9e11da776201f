package proxytest_test

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
)

// echo starts a backend that greets on each connection and then returns the bytes that it gets.
func echo(t *testing.T) (address string) {
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
				_, _ = io.WriteString(conn, greeting)
				_, _ = io.Copy(conn, conn)
			}()
		}
	}()
	return l.Addr().String()
}

const greeting = "hello"

// relayed is a client's connection through a relay.
type relayed struct {
	t *testing.T
	*net.TCPConn
}

// connect connects to the relay, and waits for the backend.
func connect(t *testing.T, r *proxytest.Relay) relayed {
	t.Helper()
	conn, err := net.Dial("tcp", r.Address())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	c := relayed{t, conn.(*net.TCPConn)}
	c.expect(greeting)
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

// What is lost stays lost, and what ends ends as it should. The suites that delay and hold bytes count them.
func TestRelay(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T, r, behind *proxytest.Relay, c relayed){
		"what is lost stays lost": func(t *testing.T, r, _ *proxytest.Relay, c relayed) {
			r.Drop(true)
			c.send("lost")
			steady.Until(t, "loss", func() error {
				if n := r.Lost.Load(); n != 4 {
					return fmt.Errorf("%d bytes, want 4", n)
				}
				return nil
			})
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
			connect(t, r)
		},
		"the end of one side is the end of the other": func(t *testing.T, r, behind *proxytest.Relay, c relayed) {
			d := connect(t, r)
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
			behind := proxytest.NewRelay(t, echo(t))
			r := proxytest.NewRelay(t, behind.Address())
			test(t, r, behind, connect(t, r))
		})
	}
}
