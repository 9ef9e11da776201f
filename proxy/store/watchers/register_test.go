package watchers

import (
	"maps"
	"testing"
	"unsafe"

	"github.com/watchfan/watchfan/fanout"
)

// The register takes as many bytes for each watch as its comment says.
func TestWatcherSize(t *testing.T) {
	if got := unsafe.Sizeof(Watcher{}) - unsafe.Sizeof(fanout.Subscription{}) + unsafe.Sizeof(&Watcher{}); got != 88 {
		t.Errorf("%d bytes for each watch", got)
	}
}

// The counts of watches by their form follow the register.
func TestForms(t *testing.T) {
	var ws Register
	all := []*Watcher{{}, {Gzip: true}, {Protocol: OverHTTP2, Gzip: true}, {Protocol: OverWebSocket}, {Protocol: OverHTTP2}}
	for _, w := range all {
		ws.Add(w)
	}
	check := func(http1, http2, webSocket, gzip int) {
		t.Helper()
		got, compressed := ws.Forms()
		want := map[string]int{"HTTP/1.1": http1, "HTTP/2": http2, "WebSocket": webSocket}
		if !maps.Equal(got, want) || compressed != gzip {
			t.Errorf("got %v, %d compressed; want %v, %d", got, compressed, want, gzip)
		}
	}
	check(2, 2, 1, 2)
	ws.Remove(all[2])
	ws.Remove(all[3])
	check(2, 1, 0, 1)
}
