package load

import (
	"context"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
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
		e.TLS = TlsConfig(e.Addr.Addr(), roots)
	}
	return e
}

// TestForms: lists of every form arrive whole, one after the other, each client's on one connection.
func TestForms(t *testing.T) {
	const pods = 100
	everything := func(int) string { return "" }
	for _, f := range Forms {
		for _, secure := range []bool{false, true} {
			t.Run(fmt.Sprintf("%v/tls=%t", f, secure), func(t *testing.T) {
				body := podList(t, f, pods)
				var connections sync.Map // by the client's address
				e := serve(t, secure, func(w http.ResponseWriter, r *http.Request) {
					connections.Store(r.RemoteAddr, true)
					query := r.URL.Query()
					if r.URL.Path != PodsPath || r.ProtoMajor != 1 || query.Get("resourceVersion") != f.Version ||
						query.Has("resourceVersion") != (f.Version != "") ||
						r.Header.Get("Authorization") != "Bearer secret" || r.Header.Get("Accept") != f.mediaType() ||
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
				clients := f.Habit(2, everything).At(e)
				defer clients.Close()
				for range 3 {
					if took, err := clients.For(t.Context(), 0); err != nil || took.Count != 2 {
						t.Fatalf("%d lists, %v", took.Count, err)
					}
				}
				if want := int64(6 * len(body)); clients.Received.Load() != want {
					t.Errorf("%d bytes, want %d", clients.Received.Load(), want)
				}
				clients.Take = func(_ int, resp *http.Response) error {
					list, err := f.Decode(resp.Body)
					if err == nil && (len(list.Items) != pods || list.Items[7].Name != NewPod(7).name) {
						err = fmt.Errorf("%d pods", len(list.Items))
					}
					return err
				}
				if _, err := clients.For(t.Context(), 0); err != nil {
					t.Error(err)
				}
				n := 0
				connections.Range(func(any, any) bool { n++; return true })
				if n != 2 {
					t.Errorf("%d connections", n)
				}
			})
		}
	}
}

// TestStreamedForms: a streamed list is what comes before the bookmark that ends the initial events; the next one
// has a new connection.
func TestStreamedForms(t *testing.T) {
	whole := true
	var connections sync.Map // by the client's address
	e := serve(t, true, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		if q.Get("watch") != "1" || q.Get("sendInitialEvents") != "true" || q.Has("resourceVersion") || q.Get("fieldSelector") != "spec.nodeName=n" {
			t.Errorf("asked for %v", r.URL)
		}
		connections.Store(r.RemoteAddr, true)
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
	f := Form{Format: "json", Encoding: "identity", Streamed: true}
	clients := f.Habit(1, func(int) string { return FieldQuery("spec.nodeName", "n") }).At(e)
	defer clients.Close()
	clients.Take = func(_ int, resp *http.Response) error {
		list, err := f.Decode(resp.Body)
		if err == nil && (len(list.Items) != 2 || list.Items[1].Name != NewPod(1).name) {
			err = fmt.Errorf("%d pods", len(list.Items))
		}
		return err
	}
	for range 2 {
		if _, err := clients.For(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	n := 0
	connections.Range(func(any, any) bool { n++; return true })
	if n != 2 {
		t.Errorf("%d connections", n)
	}
	whole = false
	if _, err := clients.For(t.Context(), 0); err == nil || !strings.Contains(err.Error(), "before the bookmark") {
		t.Errorf("a stream that ended early: %v", err)
	}
}

// TestFormErrors: an incomplete or wrong answer is an error.
func TestFormErrors(t *testing.T) {
	f := func(want string, handler http.HandlerFunc) {
		t.Helper()
		clients := Form{Format: "json", Encoding: "gzip"}.Habit(1, func(int) string { return "" }).At(serve(t, false, handler))
		defer clients.Close()
		if _, err := clients.For(t.Context(), 0); err == nil || !strings.Contains(err.Error(), want) {
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
	f("refused for 7s", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Retry-After", "7")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	f("connection that it closes", func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Connection", "close")
		answer("application/json", "gzip")(w, r)
	})
	f("unexpected EOF", func(w http.ResponseWriter, r *http.Request) {
		answer("application/json", "gzip")(w, r)
		w.Write(make([]byte, 100<<10))
		panic(http.ErrAbortHandler)
	})
}

// TestFollow: a client that patches waits until a watch on its connection has brought what it has written.
func TestFollow(t *testing.T) {
	written := make(chan string, 1)
	var clients sync.Map // by address
	e := serve(t, true, func(w http.ResponseWriter, r *http.Request) {
		clients.Store(r.RemoteAddr, true)
		if r.Method == http.MethodPatch {
			body, _ := io.ReadAll(r.Body)
			if !strings.HasPrefix(string(body), `{"at":"1`) || r.Header.Get("Content-Type") != "application/merge-patch+json" {
				t.Errorf("patched with %q", body)
			}
			io.WriteString(w, `{"metadata":{"resourceVersion":"12"}}`)
			written <- "12"
			return
		}
		for w.(http.Flusher).Flush(); ; w.(http.Flusher).Flush() {
			select {
			case version := <-written:
				fmt.Fprintf(w, `{"type":"MODIFIED","object":{"metadata":{"resourceVersion":"%s"}}}`+"\n", version)
			case <-r.Context().Done():
				return
			}
		}
	})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	c := Habit{Clients: 1, Shared: true, Patch: `{"at":"%d"}`, Target: func(int, int) string { return "/x" }}.At(e)
	defer c.Close()
	came, err := c.Follow(ctx, "/list")
	if err != nil {
		t.Fatal(err)
	}
	c.Take = func(int, *http.Response) error {
		if version := <-came; version != 12 {
			return fmt.Errorf("version %d came", version)
		}
		return nil
	}
	if _, err := c.For(t.Context(), 0); err != nil {
		t.Error(err)
	}
	n := 0
	clients.Range(func(any, any) bool { n++; return true })
	if n != 1 {
		t.Errorf("%d connections", n)
	}
}

// TestStart: each client has an address of its own; refusals and failures are counted beside whole answers.
func TestStart(t *testing.T) {
	var mu sync.Mutex
	var hosts []string
	e := serve(t, false, func(w http.ResponseWriter, r *http.Request) {
		host, _, _ := strings.Cut(r.RemoteAddr, ":")
		mu.Lock()
		defer mu.Unlock()
		if !slices.Contains(hosts, host) {
			hosts = append(hosts, host)
		}
		switch r.URL.Path {
		case "/0":
			w.WriteHeader(http.StatusTooManyRequests)
		case "/1":
			w.WriteHeader(http.StatusNotFound)
		}
	})
	c := Habit{Clients: 3, Period: 1, Target: func(i, _ int) string { return fmt.Sprintf("/%d", i) }}.Start(t.Context(), e)
	steady.Until(t, "requests of all", func() error {
		if c.Refused.Load() == 0 || c.Failed.Load() == 0 || c.Done.Load() == 0 {
			return fmt.Errorf("%d refused, %d failed, %d done", c.Refused.Load(), c.Failed.Load(), c.Done.Load())
		}
		return nil
	})
	if took := c.Stop(); took.Count != uint64(c.Done.Load()) || !strings.Contains((*c.First.Load()).Error(), "404") {
		t.Errorf("%d latencies of %d answers; the first failure: %v", took.Count, c.Done.Load(), *c.First.Load())
	}
	if len(hosts) != 3 {
		t.Errorf("clients came from %v", hosts)
	}
}
