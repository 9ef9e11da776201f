package proxy_test

import (
	"bufio"
	"crypto/tls"
	"fmt"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
	"net/http"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/operate/diagnose"
	"github.com/watchfan/watchfan/proxy/store/watchers"
)

// http2Client returns a client that speaks HTTP/2 and offers small windows for streams.
func http2Client(t *testing.T) *http.Client {
	transport := &http.Transport{
		TLSClientConfig:   &tls.Config{InsecureSkipVerify: true},
		ForceAttemptHTTP2: true, DisableCompression: true,
		HTTP2: &http.HTTP2Config{MaxReceiveBufferPerStream: 64 << 10, MaxReceiveBufferPerConnection: 16 << 20},
	}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// A watch over HTTP/2 that its client does not read is parked, and shown so. The other watch of the
// connection goes on. What is not read comes later. /debug/lanes counts the connection.
func TestHTTP2ParkedWatch(t *testing.T) {
	t.Parallel()
	f := startWatched(t)
	client := http2Client(t)
	unread, read := f.get(client, bubble.AnyState), f.get(client, bubble.AnyState)
	lines := bufio.NewReader(read.Body)
	const events = 8
	awaitLast := func(from *bufio.Reader) {
		t.Helper()
		for {
			line, err := from.ReadString('\n')
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(line, fmt.Sprintf(`"name":"c%d"`, events-1)) {
				return
			}
		}
	}
	for i := range events {
		f.cms.Put("ns", fmt.Sprintf("c%d", i), strings.Repeat("x", 100_000))
	}
	awaitLast(lines)
	f.until("parked watch", func() bool {
		list := f.watchers("sort=id&reason=" + string(watchers.StreamWindowClosed))
		if list.Total != 2 || len(list.Watchers) != 1 {
			return false
		}
		w := list.Watchers[0]
		if w.State != "Parked" || w.Stream != 1 || !w.TLS || !strings.HasPrefix(w.Client, "127.0.0.1:") {
			t.Errorf("the parked watch: %+v", w)
		}
		return true
	})
	var state diagnose.DebugState
	f.adminJSON("/debug/lanes", &state)
	if n := state.Totals; n.Connections != 1 || n.HTTP2 != 1 || n.MemoryBytes < 1<<20 || n.ProcessorSeconds <= 0 {
		t.Errorf("/debug/lanes shows %+v, want one connection, over HTTP/2", n)
	}
	awaitLast(bufio.NewReader(unread.Body))
}
