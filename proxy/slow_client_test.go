package proxy_test

import (
	"bytes"
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/diagnose"
	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/proxytest/bubble"
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
	_, address, _ := strings.Cut(map[bool]string{false: f.insecure, true: f.secure}[secure], "://")
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
	fmt.Fprintf(conn, "GET %s HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer %s\r\n\r\n", path, bubble.ClientToken)
	if _, err := io.ReadFull(conn, make([]byte, 50)); err != nil {
		t.Fatal(err)
	}
	return conn
}

// A client that does not read is evicted. That is logged once, with the numbers that led to it, and
// counted. Others are unaffected, and memory is bounded (W29). Shutdown cuts another such client.
func TestSlowClient(t *testing.T) {
	t.Parallel()
	for name, secure := range map[string]bool{"plaintext": false, "TLS": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			const frames = 20
			f := startWatched(t, func(o *proxy.Options) {
				o.Lane.ClientBufferFrames, o.ShutdownTimeout = frames, 100*time.Millisecond
			})
			good, slow := f.watch(bubble.AnyState), f.unread(t, secure, bubble.AnyState)
			written := 0
			write := func() {
				good.AwaitVersion(f.cms.Put("ns", fmt.Sprint(written), strings.Repeat("x", 256<<10)))
				written++
			}
			// unread writes until the client that does not read is parked, and its window has been closed for a while.
			unread := func() (id uint64) {
				for f.watchers("state=Parked").Matching == 0 {
					write()
				}
				f.until("verdict", func() bool {
					list := f.watchers("reason=" + string(diagnose.ClientNotReading))
					for _, w := range list.Watchers {
						id = w.ID
					}
					return list.Matching == 1
				})
				return id
			}
			var status diagnose.WatcherStatus
			f.adminJSON(fmt.Sprint("/debug/watchers/", unread()), &status)
			if status.TCP == nil || status.TCP.WindowBytes != 0 || status.TLS != secure {
				t.Errorf("the client that does not read: %+v", status)
			}
			for range frames + 1 {
				write()
			}
			f.until("eviction", func() bool { return f.watchers("state=Ending").Matching == 1 })
			var got []byte // to a proper end, or until it is cut off five seconds later
			for buf, err := make([]byte, 1<<20), error(nil); err == nil && !bytes.HasSuffix(got, []byte("\r\n0\r\n\r\n")); {
				var n int
				n, err = slow.Read(buf)
				got = append(got, buf[:n]...)
			}
			if len(got) > 9<<20 {
				t.Errorf("%d bytes were kept for the client", len(got))
			}
			f.awaitLog("Evicted watch", "reason=ClientNotReading", "lagEvents=", "windowBytes=0 ", "client=127.0.0.1:")
			if lines := f.log.With("Evicted watch"); len(lines) != 1 || strings.Contains(lines[0], bubble.ClientToken) {
				t.Errorf("logged %q", lines)
			}
			if _, metrics := f.askAdmin("/metrics", ""); proxytest.SumMetric(metrics, "watchfan_evictions_total", `reason="ClientNotReading"`) != 1 {
				t.Error("the eviction is not counted")
			}
			f.until("end of the watch", func() bool { return f.watchers("").Total == 1 })
			if n := len(good.Events()); n != written+1 {
				t.Errorf("the client that reads got %d events, want %d and the bookmark", n, written)
			}
			f.passed(0)

			f.unread(t, secure, bubble.AnyState)
			unread()
			f.stop()
			good.WantEnd()
			if len(f.log.With("msg=Stopped ", "connectionsCut=1")) != 1 {
				t.Error("shutdown has not cut the client's connection")
			}
		})
	}
}
