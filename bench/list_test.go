//go:build linux

package main

import (
	"bytes"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
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

func connectLister(t *testing.T, e endpoint, f form) lister {
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
	lean := func(f form) form { f.lean = true; return f }
	for _, f := range append(slices.Clone(forms), lean(forms[0]), lean(forms[1])) {
		for _, secure := range []bool{false, true} {
			if f.protocol == http20 && !secure {
				continue
			}
			t.Run(fmt.Sprintf("%v/tls=%t", f, secure), func(t *testing.T) {
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
	on := func(p protocol, want string, handler http.HandlerFunc) {
		t.Helper()
		l := connectLister(t, serve(t, p == http20, handler), form{"json", "gzip", "0", p, false})
		if _, err := l.list(io.Discard); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %q", p, err, want)
		}
	}
	f := func(want string, handler http.HandlerFunc) {
		t.Helper()
		on(http11, want, handler)
		on(http20, want, handler)
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
	on(http11, "connection that it closes", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		answer("application/json", "gzip")(w, r)
	})
	aborted := func(w http.ResponseWriter, r *http.Request) {
		answer("application/json", "gzip")(w, r)
		w.Write(make([]byte, 100<<10))
		panic(http.ErrAbortHandler)
	}
	on(http11, "the server closed the connection", aborted)
	on(http20, "the server reset the stream: INTERNAL_ERROR", aborted)
}

func TestListFor(t *testing.T) {
	body := podList(t, forms[0], 3)
	var served atomic.Uint64
	e := serve(t, false, func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		served.Add(1)
		w.Write(body)
	})
	listers := []lister{connectLister(t, e, forms[0]), connectLister(t, e, forms[0])}
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

// sampleLists is a run of two rounds in which watchfan failed once.
func sampleLists() []*listCase {
	o := listDefaults()
	o.Only = regexp.MustCompile("format=json/encoding=identity")
	cases := o.cases()
	for i, c := range cases {
		for round := range 2 {
			r := listResult{deliverer: c.peer.name,
				Usage: measure.Usage{Window: 4 * time.Second, Others: 40 * time.Millisecond,
					RSS: map[string]int64{c.peer.name: 300 << 20},
					CPU: map[string]time.Duration{
						"bench": time.Second, c.peer.name: time.Duration(round+1) * time.Second, "etcd": 100 * time.Millisecond,
					}},
				lists:    lists{count: 40, wire: 40 * 18_600_000},
				upstream: upstreamCounts{lists: float64(40 * (i % 2))}}
			if c.peer != direct {
				r.lists.count = 400
			}
			var h measure.Histogram
			h.Record(100 * time.Millisecond)
			r.lists.latency.Add(&h)
			if i == 1 && round == 1 {
				r.err = errors.New("list answered 503")
			}
			c.rounds = append(c.rounds, r)
		}
	}
	return cases
}

func TestListReport(t *testing.T) {
	var got bytes.Buffer
	writeListTables(&got, sampleLists())
	writeListBenchmarks(&got, sampleLists())
	text := got.String()
	sameAsGolden(t, "list.golden", text)
	if lines := benchmarkLines(t, text); lines != 19 {
		t.Errorf("%d benchmark lines of 20 results, one of which failed", lines)
	}
}
