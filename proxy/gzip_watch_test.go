package proxy_test

import (
	"bytes"
	"io"
	"net/http"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

// A client that accepts gzip gets one gzip member with the same events as other clients; see
// acceptsGzip.
func TestWatchGzip(t *testing.T) {
	t.Parallel()
	f := startFan(t, proxytest.NewServer(t), both)
	for i := range 200 {
		f.cms.Put("ns", "n"+strconv.Itoa(1000+i), strings.Repeat("data ", 400)) // more than one write's worth
	}
	f.watch(anyState).Await(201)
	const path = anyState + "&timeoutSeconds=8" // longer than opening all takes
	watchers := make(map[string]*proxytest.Watcher)
	for _, accept := range []string{"gzip", "br, gzip", "deflate,gzip , zstd", "gzip;q=1.0", "identity", "*", ""} {
		watchers[accept] = proxytest.Open(t, f.insecure+path, "Accept-Encoding", accept)
	}
	watchers["TLS"] = proxytest.Open(t, f.secure+path, "Accept-Encoding", "gzip", "Authorization",
		"Bearer "+clientToken)
	watchers["TLS, plain"] = proxytest.Open(t, f.secure+path, "Authorization", "Bearer "+clientToken)
	watchers["HTTP/2"] = proxytest.OpenHTTP2(t, f.secure+path, "Accept-Encoding", "gzip", "Authorization", "Bearer "+clientToken)
	watchers["HTTP/2, plain"] = proxytest.OpenHTTP2(t, f.secure+path, "Authorization", "Bearer "+clientToken)
	for i := range 50 {
		f.cms.Put("ns", "n"+strconv.Itoa(1000+i), strings.Repeat("other ", 300))
	}
	watchers[""].Await(251)
	if err := watchers[""].Ended(); err != nil {
		t.Fatal(err)
	}
	want := watchers[""].Strings()
	for accept, w := range watchers {
		if w.Code != http.StatusOK {
			t.Fatalf("%q: status %d", accept, w.Code)
		}
		if err := w.Ended(); err != nil {
			t.Errorf("%q: %v", accept, err)
		}
		wantStrings(t, accept, w.Strings(), want...)
		encoding, vary := "", ""
		switch accept {
		case "gzip", "br, gzip", "deflate,gzip , zstd", "TLS", "HTTP/2":
			encoding, vary = "gzip", "Accept-Encoding"
		}
		if e, v := w.Header.Get("Content-Encoding"), w.Header.Get("Vary"); e != encoding || v != vary {
			t.Errorf("Accept-Encoding %q: Content-Encoding %q, Vary %q, want %q, %q", accept, e, v, encoding, vary)
		}
	}
	f.passed(0)
}

// The Python client reads a watch without decompressing it, whatever it accepts. Its lists are
// compressed as others' are.
func TestWatchGzipPython(t *testing.T) {
	t.Parallel()
	f := startFan(t, proxytest.NewServer(t))
	f.cms.Put("ns", "a", strings.Repeat("data ", 40_000)) // above the threshold of lists
	f.watch(anyState).Await(2)
	const python = "OpenAPI-Generator/36.0.2/python"
	for agent, encoding := range map[string]string{python: "", "kubelet/v1.36.3 (linux/amd64) kubernetes/abcdef0": "gzip"} {
		w := proxytest.Open(t, f.insecure+anyState+"&timeoutSeconds=1", "Accept-Encoding", "gzip", "User-Agent", agent)
		if err := w.Ended(); err != nil {
			t.Error(err)
		}
		if e := w.Header.Get("Content-Encoding"); e != encoding {
			t.Errorf("a watch of %s: Content-Encoding %q, want %q", agent, e, encoding)
		}
		list, _ := f.get("/api/v1/configmaps?resourceVersion=0", "Accept-Encoding", "gzip", "User-Agent", agent)
		if e := list.Header.Get("Content-Encoding"); e != "gzip" {
			t.Errorf("a list of %s: Content-Encoding %q, want gzip", agent, e)
		}
	}
	f.passed(0)
}

// With --compress-watches=false no watch is compressed.
func TestWatchGzipOff(t *testing.T) {
	t.Parallel()
	f := startFan(t, proxytest.NewServer(t), func(o *proxy.Options) { o.Lane.CompressWatches = false })
	f.cms.Put("ns", "a", "1")
	f.watch(anyState).Await(2)
	w := proxytest.Open(t, f.insecure+anyState+"&timeoutSeconds=1", "Accept-Encoding", "gzip")
	if err := w.Ended(); err != nil {
		t.Error(err)
	}
	wantStrings(t, "plain", w.Strings(), "ADDED ns/a 101", "END 101")
	if h := w.Header; h.Get("Content-Encoding") != "" || h.Get("Vary") != "" {
		t.Errorf("got %v", h)
	}
}

// The gzip member begins together with the response's head. After its end, the connection serves
// the next request.
func TestWatchGzipBytes(t *testing.T) {
	t.Parallel()
	for _, port := range []string{"plaintext", "TLS"} {
		t.Run(port, func(t *testing.T) {
			t.Parallel()
			f := startFan(t, proxytest.NewServer(t), both)
			f.watch(anyState).Await(1)
			fr := &front{t: t, insecure: strings.TrimPrefix(f.insecure, "http://"),
				secure: strings.TrimPrefix(f.secure, "https://")}
			c := fr.dial()
			if port == "TLS" {
				c = fr.dialTLS()
			}
			for range 2 {
				c.send("GET "+since+"&timeoutSeconds=3 HTTP/1.1\nHost: localhost\nAccept-Encoding: gzip\n"+
					"Authorization: Bearer "+clientToken+"\n\n", f.cms.Put("ns", "x", "1"))
				began := time.Now()
				resp := c.head("GET")
				header := make([]byte, 10)
				if _, err := io.ReadFull(resp.Body, header); err != nil ||
					!bytes.HasPrefix(header, []byte("\x1f\x8b\x08")) || time.Since(began) > 2900*time.Millisecond {
					t.Fatalf("body begins with %q, %v, after %s", header, err, time.Since(began))
				}
				if got := resp.Header.Get("Content-Encoding"); got != "gzip" || resp.TransferEncoding == nil {
					t.Errorf("Content-Encoding %q, Transfer-Encoding %q", got, resp.TransferEncoding)
				}
				rest, err := io.ReadAll(resp.Body)
				want := "\x03\x00" + strings.Repeat("\x00", 8) // the end of an empty member
				if err != nil || string(rest) != want {
					t.Errorf("body ends with %q, %v, want %q", rest, err, want)
				}
			}
		})
	}
}
