//go:build linux

package load

import (
	"bytes"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
)

// serve runs handler for a test and returns where.
func serve(t *testing.T, secure bool, handler http.HandlerFunc) Endpoint {
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = secure // HTTP/1.1 is served too
	if secure {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	e := Endpoint{Addr: netip.MustParseAddrPort(server.Listener.Addr().String()), Token: "secret"}
	if secure {
		roots := x509.NewCertPool()
		roots.AddCert(server.Certificate())
		e.TLS = TlsConfig(e.Addr, roots)
	}
	return e
}

func connectLister(t *testing.T, e Endpoint, f Form) *Lister {
	t.Helper()
	l, err := NewLister(e, f, "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.Close)
	return l
}

// TestLister: lists of every form arrive whole, one after the other, on one connection.
func TestLister(t *testing.T) {
	const pods = 100
	for _, f := range Forms(true) {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/tls=%t", []any{f.Format, f.Encoding, f.Version, f.Lean}, secure), func(t *testing.T) {
				body := podList(t, f, pods)
				var connections sync.Map // by the client's address
				e := serve(t, secure, func(w http.ResponseWriter, r *http.Request) {
					connections.Store(r.RemoteAddr, true)
					query := r.URL.Query()
					if r.URL.Path != PodsPath || query.Get("resourceVersion") != f.Version ||
						query.Has("resourceVersion") != (f.Version != "") ||
						r.Header.Get("Authorization") != "Bearer secret" || r.Header.Get("Accept") != f.accept() ||
						(r.Header.Get("Accept-Encoding") == "gzip") != (f.Encoding == "gzip") {
						t.Errorf("asked for %v with %v", r.URL, r.Header)
					}
					w.Header().Set("Content-Type", f.mediaType()+";charset=utf-8")
					if f.Encoding == "gzip" {
						w.Header().Set("Content-Encoding", "gzip")
					}
					w.Write(body[:1])
					w.(http.Flusher).Flush() // chunked from here on
					w.Write(body[1:])
				})
				l := connectLister(t, e, f)
				for range 3 {
					var got bytes.Buffer
					if _, err := l.List(&got); err != nil {
						t.Fatal(err)
					}
					list, err := DecodePods(f, &got)
					if err != nil || len(list.Items) != pods || list.Items[7].Name != NewPod(7).name {
						t.Fatalf("got %d pods, %v", len(list.Items), err)
					}
				}
				n := 0
				connections.Range(func(any, any) bool { n++; return true })
				if n != 1 {
					t.Errorf("%d connections", n)
				}
				if least := uint64(3 * len(body)); l.wire.received < least || l.wire.received > least+least/5+5000 {
					t.Errorf("%d bytes on the wire for %d of bodies", l.wire.received, least)
				}
			})
		}
	}
}

// TestStreamedLists: a streamed list is what comes before the bookmark that ends the initial events; the next one
// has a new connection.
func TestStreamedLists(t *testing.T) {
	f := Form{Format: "json", Encoding: "identity", Streamed: true}
	whole := true
	e := serve(t, true, func(w http.ResponseWriter, r *http.Request) {
		if q := r.URL.Query(); q.Get("watch") != "true" || q.Get("sendInitialEvents") != "true" || q.Has("resourceVersion") {
			t.Errorf("asked for %v", r.URL)
		}
		w.Header().Set("Content-Type", "application/json")
		for i := range 2 {
			fmt.Fprintf(w, "{\"type\":\"ADDED\",\"object\":%s}\n", NewPod(i).Json)
		}
		if !whole {
			return
		}
		fmt.Fprintf(w, "{\"type\":\"BOOKMARK\",\"object\":{\"metadata\":{\"annotations\":{%s}}}}\n", endMark)
		w.(http.Flusher).Flush()
		<-r.Context().Done()
	})
	l := connectLister(t, e, f)
	for range 2 {
		var got bytes.Buffer
		if _, err := l.List(&got); err != nil {
			t.Fatal(err)
		}
		list, err := DecodePods(f, &got)
		if err != nil || len(list.Items) != 2 || list.Items[1].Name != NewPod(1).name {
			t.Fatalf("got %d pods, %v", len(list.Items), err)
		}
	}
	whole = false
	if _, err := l.List(io.Discard); err == nil || !strings.Contains(err.Error(), "before the bookmark") {
		t.Errorf("a stream that ended early: %v", err)
	}
}

// TestListerErrors: an incomplete or wrong answer is an error.
func TestListerErrors(t *testing.T) {
	f := func(want string, handler http.HandlerFunc) {
		t.Helper()
		l := connectLister(t, serve(t, false, handler), Form{Format: "json", Encoding: "gzip", Version: "0"})
		if _, err := l.List(io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	answer := func(mediaType, encoding string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", mediaType)
			if encoding != "" {
				w.Header().Set("Content-Encoding", encoding)
			}
		}
	}
	f("application/json, identity: want application/json, gzip", answer("application/json", ""))
	f("application/vnd.kubernetes.protobuf, gzip: want", answer("application/vnd.kubernetes.protobuf", "gzip"))
	f("nobody", func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(http.StatusForbidden)
		io.WriteString(w, "nobody")
	})
	f("connection that it closes", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		answer("application/json", "gzip")(w, r)
	})
	f("the server closed the connection", func(w http.ResponseWriter, r *http.Request) {
		answer("application/json", "gzip")(w, r)
		w.Write(make([]byte, 100<<10))
		panic(http.ErrAbortHandler)
	})
}
