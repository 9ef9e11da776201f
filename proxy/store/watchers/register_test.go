package watchers

import (
	"maps"
	"strings"
	"testing"
	"unsafe"

	"github.com/watchfan/watchfan/fanout"
)

// Strings that clients send are shown as one short line of plain text.
func TestShown(t *testing.T) {
	for in, want := range map[string]string{
		"kubelet/v1.37":             "kubelet/v1.37",
		"a\x1b[2Jb\nc\td":           "a\ufffd[2Jb\ufffdc\ufffdd",
		"\xff\u009b1m\u202eevil":    "\ufffd\ufffd1m\ufffdevil",
		"ä":                         "ä",
		strings.Repeat("ä", 10_000): strings.Repeat("ä", (maxShown-len("…"))/2) + "\ufffd…",
	} {
		if got := Shown(in); got != want {
			t.Errorf("Shown(%.20q…) = %q, want %q", in, got, want)
		}
	}
}

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
