package diagnose

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/store/watchers"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
)

// adminAnswering is an admin port that gives the same answer to each request. asked lists the
// requests.
func adminAnswering(t *testing.T, code int, body string) (a *adminPort, asked *[]string) {
	asked = new([]string)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		*asked = append(*asked, r.URL.String())
		w.Header().Set("Server", serverName)
		w.WriteHeader(code)
		fmt.Fprint(w, body)
	}))
	t.Cleanup(s.Close)
	return &adminPort{url: s.URL + "/"}, asked
}

// Without an id, the slowest watch is explained.
func TestExplain(t *testing.T) {
	a, asked := adminAnswering(t, http.StatusOK, `{"watchers":[{"id":17}]}`)
	var out strings.Builder
	if err := a.explain(&out, "", true); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(*asked, " "); got != "/debug/watchers?format=json&limit=1 /debug/watchers/17?format=json" {
		t.Errorf("asked %s", got)
	}
	*asked = nil
	if err := a.explain(&out, "3/../x", false); err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(*asked, " "); got != "/debug/watchers/3%2F..%2Fx?format=text" {
		t.Errorf("asked %s", got)
	}
}

// Bytes that wait in the socket and segments under way are told apart: of a client that does not read,
// many bytes wait and no segment is under way.
func TestExplainSocket(t *testing.T) {
	w := WatcherStatus{ID: 7, Reason: watchers.ClientNotReading, Verdict: &watchers.Verdict{},
		TCP: &downstream.TCPInfo{QueuedBytes: 3_922_995, UnsentBytes: 3_922_995}}
	var out strings.Builder
	w.writeText(&out)
	if want := "3922995 bytes queued, 3922995 of them not sent yet, 0 segments sent and not acknowledged, window 0 bytes"; !strings.Contains(out.String(), want) {
		t.Errorf("it does not say %q:\n%s", want, &out)
	}
}

// Errors say what to do.
func TestAdminErrors(t *testing.T) {
	for _, c := range []struct {
		code       int
		body, says string
	}{
		{http.StatusOK, `{"watchers":[]}`, "no watch is served from a cache now"},
		{http.StatusOK, `<html>`, "in a form that is not known here"},
		{http.StatusNotFound, "there is no watch 7", "404 Not Found: there is no watch 7"},
	} {
		a, _ := adminAnswering(t, c.code, c.body)
		if err := a.explain(new(strings.Builder), "", false); err == nil || !strings.Contains(err.Error(), c.says) {
			t.Errorf("%d %s: %v, want %q", c.code, c.body, err, c.says)
		}
	}
	for url, says := range map[string]string{
		"http://127.0.0.1:1": "is watchfan running",
		"127.0.0.1:1": "does not answer at http://127.0.0.1:1 (dial tcp 127.0.0.1:1: connect: " +
			"connection refused)",
		"http://a b":      "is no URL",
		"ftp://127.0.0.1": "unsupported protocol",
	} {
		if err := (&adminPort{url: url}).explain(new(strings.Builder), "1", false); err == nil ||
			!strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, want %q", url, err, says)
		}
	}
}

// Another server than the admin port is told by its answers, whatever they are.
func TestAnotherServer(t *testing.T) {
	for name, start := range map[string]func(http.Handler) *httptest.Server{"plain": httptest.NewServer, "TLS": httptest.NewTLSServer} {
		for _, code := range []int{http.StatusOK, http.StatusNotFound, http.StatusForbidden} {
			s := start(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				w.WriteHeader(code)
				fmt.Fprint(w, `{"watchers":[{"id":17}]}`)
			}))
			a := &adminPort{url: "http://" + s.Listener.Addr().String()}
			for _, id := range []string{"", "7"} {
				err := a.explain(new(strings.Builder), id, false)
				if err == nil || !strings.Contains(err.Error(), "is not the admin port of a watchfan (it answers "+strconv.Itoa(code)) &&
					!strings.Contains(err.Error(), "is not the admin port of a watchfan (it answers 400 Bad Request") {
					t.Errorf("%s, %d, %q: %v", name, code, id, err)
				}
			}
			s.Close()
		}
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		if c, err := ln.Accept(); err == nil {
			_, _ = c.Read(make([]byte, 1))
			_, _ = c.Write([]byte("\x15\x03\x01\x00\x02\x02\x16\r\n\r\n")) // an alert of TLS
			c.Close()
		}
	}()
	a := &adminPort{url: ln.Addr().String()}
	if err := a.explain(new(strings.Builder), "", false); err == nil || !strings.Contains(err.Error(), "does not speak HTTP without TLS") {
		t.Errorf("TLS: %v", err)
	}
}

// What answers in an admin port's place writes no control character on a terminal, and sends nobody elsewhere.
func TestHostileAdminPort(t *testing.T) {
	const hostile = "\x1b]0;title\a\x9b2J\u202e\xff \tx\r\n"
	const shown = "\ufffd]0;title\ufffd\ufffd2J\ufffd\ufffd \tx\ufffd\n"
	elsewhere := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { t.Errorf("%s was asked elsewhere", r.URL) }))
	defer elsewhere.Close()
	code := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", serverName)
		w.Header().Set("Location", elsewhere.URL)
		w.WriteHeader(code)
		if r.URL.Path == "/debug/lanes" {
			fmt.Fprint(w, `{"upstream":"\u001b[2J"}`)
		} else if r.URL.Path == WatchersPath && r.URL.Query().Get("format") == "json" {
			fmt.Fprintf(w, `{"watchers":[{}%s]}`, strings.Repeat(",{}", mostObjects))
		} else {
			fmt.Fprint(w, hostile)
		}
	}))
	defer s.Close()
	a := &adminPort{url: s.URL}
	var out strings.Builder
	text, err := a.top(make(url.Values))
	if err = errors.Join(err, a.explain(&out, "7", false)); err != nil || text != "\ufffd[2J\n"+shown || out.String() != shown {
		t.Errorf("%v, top says %q, explain %q", err, text, out.String())
	}
	for _, code = range []int{http.StatusFound, http.StatusInternalServerError} {
		if err := a.explain(&out, "7", false); err == nil || strings.ContainsAny(err.Error(), "\x1b\a\r") {
			t.Errorf("%d: %q", code, err)
		}
	}
	code = http.StatusOK
	if err := a.explain(&out, "", false); err == nil || !strings.Contains(err.Error(), "more than 100000 objects") {
		t.Errorf("many objects: %v", err)
	}
}

// Wrong values of flags are refused before the admin port is asked.
func TestWrongFlags(t *testing.T) {
	for arg, want := range map[string]string{
		"--limit=many":  "give a number from 1 to 10000",
		"--min-age=5":   "give a duration as 30s or 10m",
		"--reason=Slow": "give one of ClientNotReading, ",
	} {
		if err := Top().ParseFlags([]string{arg}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", arg, err, want)
		}
	}
}
