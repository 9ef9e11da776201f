//go:build linux

package main

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
	"sync/atomic"
	"testing"
	"time"
)

// serve runs handler for a test and returns where.
func serve(t *testing.T, secure bool, handler http.HandlerFunc) endpoint {
	server := httptest.NewUnstartedServer(handler)
	server.EnableHTTP2 = secure // HTTP/1.1 is served too
	if secure {
		server.StartTLS()
	} else {
		server.Start()
	}
	t.Cleanup(server.Close)
	e := endpoint{addr: netip.MustParseAddrPort(server.Listener.Addr().String()), token: "secret"}
	if secure {
		roots := x509.NewCertPool()
		roots.AddCert(server.Certificate())
		e.tls = tlsConfig(e.addr, roots)
	}
	return e
}

func connectLister(t *testing.T, e endpoint, f form) *lister {
	t.Helper()
	l, err := newLister(e, f, podsPath)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(l.close)
	return l
}

// TestLister: lists of every form arrive whole, one after the other, on one connection.
func TestLister(t *testing.T) {
	const pods = 100
	for _, f := range forms(true) {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/tls=%t", f.axes(), secure), func(t *testing.T) {
				body := podList(t, f, pods)
				var connections sync.Map // by the client's address
				e := serve(t, secure, func(w http.ResponseWriter, r *http.Request) {
					connections.Store(r.RemoteAddr, true)
					query := r.URL.Query()
					if r.URL.Path != podsPath || query.Get("resourceVersion") != f.version ||
						query.Has("resourceVersion") != (f.version != "") ||
						r.Header.Get("Authorization") != "Bearer secret" || r.Header.Get("Accept") != f.accept() ||
						(r.Header.Get("Accept-Encoding") == "gzip") != (f.encoding == "gzip") {
						t.Errorf("asked for %v with %v", r.URL, r.Header)
					}
					w.Header().Set("Content-Type", f.mediaType()+";charset=utf-8")
					if f.encoding == "gzip" {
						w.Header().Set("Content-Encoding", "gzip")
					}
					w.Write(body[:1])
					w.(http.Flusher).Flush() // chunked from here on
					w.Write(body[1:])
				})
				l := connectLister(t, e, f)
				for range 3 {
					var got bytes.Buffer
					if _, err := l.list(&got); err != nil {
						t.Fatal(err)
					}
					list, err := decodePods(f, &got)
					if err != nil || len(list.Items) != pods || list.Items[7].Name != newPod(7).name {
						t.Fatalf("got %d pods, %v", len(list.Items), err)
					}
				}
				n := 0
				connections.Range(func(any, any) bool { n++; return true })
				if n != 1 {
					t.Errorf("%d connections", n)
				}
				if least := uint64(3 * len(body)); l.received() < least || l.received() > least+least/5+5000 {
					t.Errorf("%d bytes on the wire for %d of bodies", l.received(), least)
				}
			})
		}
	}
}

// TestListerErrors: an incomplete or wrong answer is an error.
func TestListerErrors(t *testing.T) {
	f := func(want string, handler http.HandlerFunc) {
		t.Helper()
		l := connectLister(t, serve(t, false, handler), form{"json", "gzip", "0", false})
		if _, err := l.list(io.Discard); err == nil || !strings.Contains(err.Error(), want) {
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

func TestListFor(t *testing.T) {
	body := podList(t, forms(false)[0], 3)
	var served atomic.Uint64
	e := serve(t, false, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		served.Add(1)
		w.Write(body)
	})
	listers := []*lister{connectLister(t, e, forms(false)[0]), connectLister(t, e, forms(false)[0])}
	before := uint64(0)
	for _, d := range []time.Duration{0, 20 * time.Millisecond} {
		got, err := listFor(t.Context(), listers, d)
		if err != nil {
			t.Fatal(err)
		}
		made := served.Load() - before
		before += made
		if got.count < 2 || got.count != made || got.count != got.latency.Count {
			t.Errorf("%v: %d lists with %d latencies, the server made %d", d, got.count, got.latency.Count, made)
		}
		if got.latency.Quantile(0) <= 0 || got.wire < got.count*uint64(len(body)) {
			t.Errorf("%v: shortest %v, %d bytes", d, got.latency.Quantile(0), got.wire)
		}
	}
	listers[1].close()
	if _, err := listFor(t.Context(), listers, 0); err == nil {
		t.Error("a lost connection went unnoticed")
	}
}
