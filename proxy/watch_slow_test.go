package proxy_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

// unread opens a watch on a connection of its own. Nothing is read from it after the first bytes of
// the response.
func (f *fan) unread(t *testing.T, secure bool, path string) net.Conn {
	t.Helper()
	dialer := net.Dialer{Control: func(_, _ string, c syscall.RawConn) error {
		return c.Control(func(fd uintptr) {
			_ = syscall.SetsockoptInt(int(fd), syscall.SOL_SOCKET, syscall.SO_RCVBUF, 4096)
		})
	}}
	address := strings.TrimPrefix(f.insecure, "http://")
	if secure {
		address = strings.TrimPrefix(f.secure, "https://")
	}
	c, err := dialer.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	_ = c.SetDeadline(time.Now().Add(proxytest.Patience))
	conn := c
	if secure {
		conn = tls.Client(c, &tls.Config{InsecureSkipVerify: true})
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", path, clientToken)
	if _, err := io.ReadFull(conn, make([]byte, 50)); err != nil {
		t.Fatal(err)
	}
	return conn
}

func eachPort(t *testing.T, test func(t *testing.T, secure bool)) {
	for name, secure := range map[string]bool{"plaintext": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, secure)
		})
	}
}

// "client stops reading; …: its stream is ended at some point; others unaffected; memory bounded"
// (W29).
func TestSlowClientIsEvicted(t *testing.T) {
	t.Parallel()
	eachPort(t, func(t *testing.T, secure bool) {
		f := startFan(t, proxytest.NewServer(t), both, func(o *proxy.Options) { o.Lane.ClientBufferBytes = 1 << 20 })
		good := f.watch(anyState)
		slow := f.unread(t, secure, anyState)
		var last uint64
		for i := range 40 {
			last = f.cms.Put("ns", fmt.Sprint(i), strings.Repeat("x", 256<<10))
			if i%4 == 3 { // otherwise it would fall behind too on a busy machine
				good.AwaitVersion(last)
			}
		}
		objects := 0
		for _, e := range good.AwaitVersion(last) {
			if e.Type == "ADDED" {
				objects++
			}
		}
		if objects != 40 {
			t.Errorf("the client that reads got %d objects, want 40", objects)
		}
		time.Sleep(7 * time.Second) // it has 5 s to take its last bytes
		body, err := io.ReadAll(slow)
		if len(body) > 9<<20 {
			t.Errorf("%d bytes were kept for the client", len(body))
		}
		if strings.HasSuffix(string(body), "\r\n0\r\n\r\n") {
			t.Errorf("got a proper end, %v", err)
		}
		if !good.Open() {
			t.Error("the client that reads was ended")
		}
		f.passed(0)
	})
}

// A client that reads again in time gets every event once.
func TestSlowClientCatchesUp(t *testing.T) {
	t.Parallel()
	eachPort(t, func(t *testing.T, secure bool) {
		f := startFan(t, proxytest.NewServer(t), both)
		good := f.watch(anyState)
		slow := f.unread(t, secure, anyState)
		var last uint64
		for i := range 40 {
			last = f.cms.Put("ns", fmt.Sprint(i), strings.Repeat("x", 128<<10))
		}
		good.AwaitVersion(last)
		time.Sleep(100 * time.Millisecond)
		var all strings.Builder
		buf := make([]byte, 64<<10)
		for tail := ""; !strings.Contains(tail, `"name":"39"`); {
			n, err := slow.Read(buf)
			if err != nil {
				t.Fatalf("after %d bytes: %v", all.Len(), err)
			}
			all.Write(buf[:n])
			tail = all.String()[max(0, all.Len()-n-20):] // the name may come in two parts
		}
		for i := range 40 {
			name := fmt.Sprintf(`"name":"%d"`, i)
			if strings.Count(all.String(), name) != 1 {
				t.Errorf("%d times %s", strings.Count(all.String(), name), name)
			}
		}
		f.passed(0)
	})
}

// Shutdown does not wait for a client that does not read.
func TestShutdownWithSlowClient(t *testing.T) {
	eachPort(t, func(t *testing.T, secure bool) {
		f := startFan(t, proxytest.NewServer(t), both)
		good := f.watch(anyState)
		f.unread(t, secure, anyState)
		good.AwaitVersion(f.cms.Put("ns", "a", strings.Repeat("x", 8<<20)))
		started := time.Now()
		f.stop()
		if took := time.Since(started); took > proxytest.Patience/2 { // a write may take 60 s
			t.Errorf("shutdown took %s, its timeout is 2 s", took)
		}
		if err := good.Ended(); err != nil {
			t.Errorf("the client that reads: stream ended with %v", err)
		}
	})
}

// A client that resets its connection no longer keeps its lane, in any state of its watch.
func TestClientReset(t *testing.T) {
	eachPort(t, func(t *testing.T, secure bool) {
		f := startFan(t, proxytest.NewServer(t), both, func(o *proxy.Options) {
			o.Lane.IdleTimeout = 10 * time.Millisecond
		})
		for _, size := range []int{1, 8 << 20} {
			c := f.unread(t, secure, anyState)
			f.cms.Put("ns", "a", strings.Repeat("x", size))
			time.Sleep(50 * time.Millisecond)
			if tc, ok := c.(*tls.Conn); ok {
				c = tc.NetConn()
			}
			_ = c.(*net.TCPConn).SetLinger(0)
			c.Close()
		}
		f.until("end of the lane", func() bool { return f.up.Open(proxytest.WatchList) == 0 })
	})
}
