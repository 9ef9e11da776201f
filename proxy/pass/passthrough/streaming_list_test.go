package passthrough_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

const (
	things      = "/apis/example.com/v1/things?watch=true"
	streamed    = things + "&allowWatchBookmarks=true&resourceVersionMatch=NotOlderThan&sendInitialEvents=true"
	thingAdded  = `{"type":"ADDED","object":{"kind":"Thing","apiVersion":"example.com/v1","metadata":{"name":"a","resourceVersion":"5"}}}` + "\n"
	plainMark   = `{"type":"BOOKMARK","object":{"kind":"Thing","apiVersion":"example.com/v1","metadata":{"resourceVersion":"7"}}}` + "\n"
	endMark     = `{"type":"BOOKMARK","object":{"kind":"Thing","metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}` + "\n"
	expiredList = `{"type":"ERROR","object":{"kind":"Status","code":504}}` + "\n"
)

// backend answers streaming lists of things, and counts the proxy's own.
type backend struct {
	answer func(w http.ResponseWriter, r *http.Request)
	probes atomic.Int32
	last   atomic.Pointer[http.Request] // probe
}

func (b *backend) behind(p *bubble.Proxy) {
	p.Up.OnClients(b.answer)
	p.Up.On(proxytest.WatchList, 1000, func(c *proxytest.Call) {
		b.probes.Add(1)
		b.last.Store(c.R)
		b.answer(c.W, c.R)
	})
}

// streams answers with events, and then with nothing until the client leaves, or after timeoutSeconds.
func streams(events ...string) func(http.ResponseWriter, *http.Request) {
	return func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Type", "application/json")
		io.WriteString(w, strings.Join(events, ""))
		flush(w)
		<-r.Context().Done()
	}
}

// list sends a streaming list that no cache answers.
func list(p *bubble.Proxy, target string) *bubble.Client {
	return p.Send(bubble.Request{Target: target, Header: []string{"Accept", "application/yaml"}})
}

// A client gets a streaming list that its server ends, the server's own refusal, or kube-apiserver's, within two
// seconds.
func TestStreamingLists(t *testing.T) {
	const refused = `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"ListOptions.meta.k8s.io \"\" is invalid: ` +
		`sendInitialEvents: Forbidden: sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled","reason":"Invalid",` +
		`"details":{"group":"meta.k8s.io","kind":"ListOptions","causes":[{"reason":"FieldValueForbidden","message":"Forbidden: ` +
		`sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled","field":"sendInitialEvents"}]},"code":422}` + "\n"
	probe := func(r *http.Request) bool { return r.UserAgent() != proxytest.ClientAgent }
	for name, row := range map[string]struct {
		answer func(http.ResponseWriter, *http.Request)
		code   int
		body   string // that begins the response
		probes int32  // of two clients, one after the other
	}{
		"ended":     {streams(thingAdded, endMark), 200, thingAdded + endMark, 1},
		"unmarked":  {streams(thingAdded, plainMark), 422, refused, 1},
		"legacy":    {streams(thingAdded), 422, refused, 1},
		"headless":  {func(_ http.ResponseWriter, r *http.Request) { <-r.Context().Done() }, 422, refused, 1},
		"cut short": {func(w http.ResponseWriter, r *http.Request) { io.WriteString(w, thingAdded) }, 422, refused, 1},
		"much": {func(w http.ResponseWriter, r *http.Request) {
			for r.Context().Err() == nil && probe(r) {
				io.WriteString(w, thingAdded)
			}
			streams()(w, r)
		}, 422, refused, 1},
		"refused": {func(w http.ResponseWriter, r *http.Request) {
			w.WriteHeader(422)
			io.WriteString(w, "its own")
		}, 422, "its own", 0},
		"down": {func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(503) }, 503, "", 0},
		"slow to refuse": {func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(3 * time.Second)
			w.WriteHeader(403)
		}, 422, refused, 1},
		"selector refused": {func(w http.ResponseWriter, r *http.Request) {
			if probe(r) {
				w.WriteHeader(400)
			} else {
				streams(thingAdded)(w, r)
			}
		}, 422, refused, 1},
		"probe forbidden": {func(w http.ResponseWriter, r *http.Request) {
			if probe(r) {
				w.WriteHeader(403)
			} else {
				streams(thingAdded)(w, r)
			}
		}, 200, thingAdded, 2},
		"probe broken": {func(w http.ResponseWriter, r *http.Request) {
			if probe(r) {
				io.WriteString(w, thingAdded)
				flush(w)
				panic(http.ErrAbortHandler)
			}
			streams(thingAdded)(w, r)
		}, 200, thingAdded, 2},
		"probe failed": {func(w http.ResponseWriter, r *http.Request) {
			if probe(r) {
				streams(expiredList)(w, r)
			} else {
				streams(thingAdded)(w, r)
			}
		}, 200, thingAdded, 2},
	} {
		bubble.Row(t, name, func(t *testing.T, p *bubble.Proxy) {
			b := &backend{answer: row.answer}
			b.behind(p)
			for range 2 {
				began := time.Now()
				resp := list(p, streamed).Response()
				if took := time.Since(began); took > 2*time.Second {
					t.Errorf("the client has waited for %s", took)
				}
				body := make([]byte, len(row.body))
				if _, err := io.ReadFull(resp.Body, body); err != nil || resp.StatusCode != row.code || string(body) != row.body {
					t.Errorf("got %d %q, %v\nwant %d %q", resp.StatusCode, body, err, row.code, row.body)
				}
			}
			if n := b.probes.Load(); n != row.probes {
				t.Errorf("the server was asked %d times, want %d", n, row.probes)
			}
			if got, want := len(p.Log.With("Refused streaming lists", "resource=example.com/v1/things")) == 1, row.body == refused; got != want {
				t.Errorf("logged: %t, want %t", got, want)
			}
		})
	}
}

// Watches that wait for no end are passed through as they are, and kube-apiserver's own groups are.
func TestStreamingListsUnasked(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		b := &backend{answer: streams(thingAdded)}
		b.behind(p)
		for _, target := range []string{
			things, strings.Replace(streamed, "sendInitialEvents=true", "sendInitialEvents=false", 1),
			strings.Replace(streamed, "allowWatchBookmarks=true", "", 1), strings.Replace(streamed, "watch=true", "watch=0", 1),
			strings.Replace(streamed, "/apis/example.com/v1/things", bubble.CMs, 1),
			strings.Replace(streamed, "example.com", "storage.k8s.io", 1),
		} {
			if resp := list(p, target).Response(); resp.StatusCode != http.StatusOK {
				t.Errorf("%s: got %d", target, resp.StatusCode)
			}
		}
		if n := b.probes.Load(); n != 0 {
			t.Errorf("the server was asked %d times", n)
		}
	})
}

// kube-apiserver's own custom resources are not asked about either, once they are known as such: it may
// just be slow.
func TestStreamingListsOwn(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		b := &backend{answer: func(w http.ResponseWriter, r *http.Request) {
			time.Sleep(10 * time.Second)
			streams(thingAdded)(w, r)
		}}
		p.Watch("/apis/ex.io/v1/foos?watch=1&resourceVersion=0")
		synctest.Wait()
		b.behind(p)
		resp := list(p, strings.Replace(streamed, "example.com/v1/things", "ex.io/v1/foos", 1)).Response()
		if n := b.probes.Load(); n != 0 || resp.StatusCode != http.StatusOK {
			t.Errorf("got %d, and the server was asked %d times", resp.StatusCode, n)
		}
	})
}

// A kube-apiserver that is slow in all it does, or fails, as when it starts again, says nothing of the server behind
// it. The client waits for it.
func TestStreamingListsSlow(t *testing.T) {
	for name, meanwhile := range map[string]func(*proxytest.Call){
		"slow":   nil,
		"broken": func(*proxytest.Call) { panic(http.ErrAbortHandler) },
		"busy":   func(c *proxytest.Call) { c.W.WriteHeader(http.StatusTooManyRequests) },
		"down":   func(c *proxytest.Call) { c.W.WriteHeader(http.StatusInternalServerError) },
	} {
		bubble.Row(t, name, func(t *testing.T, p *bubble.Proxy) {
			slow := time.Now().Add(5 * time.Second)
			p.Up.On(proxytest.Other, 1<<20, func(c *proxytest.Call) {
				if meanwhile != nil && time.Now().Before(slow) {
					meanwhile(c)
					return
				}
				time.Sleep(time.Until(slow))
				c.Serve()
			})
			b := &backend{answer: func(w http.ResponseWriter, r *http.Request) {
				time.Sleep(time.Until(slow))
				streams(thingAdded, endMark)(w, r)
			}}
			b.behind(p)
			if resp := list(p, streamed).Response(); resp.StatusCode != http.StatusOK {
				t.Errorf("got %d", resp.StatusCode)
			}
		})
	}
}

// The question is asked once for all clients of a resource, in the name of one of them and within its
// rights. Those who leave end it.
func TestStreamingListProbe(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		b := &backend{answer: streams(thingAdded)}
		b.behind(p)
		ask := func() []*bubble.Client {
			var clients []*bubble.Client
			for range 20 {
				clients = append(clients, p.Begin(bubble.Request{
					Target: strings.Replace(streamed, "things", "namespaces/ns/things", 1) + "&fieldSelector=metadata.name%3Da&labelSelector=x",
					Header: []string{"Accept", "application/yaml", "Impersonate-User", "jane", "X-Other", "1"}, Token: bubble.ClientToken}))
			}
			synctest.Wait()
			return clients
		}
		for _, c := range ask() {
			c.Leave()
		}
		synctest.Wait()
		for _, c := range ask() {
			if resp := c.Response(); resp.StatusCode != http.StatusUnprocessableEntity {
				t.Errorf("got %d", resp.StatusCode)
			}
		}
		r := b.last.Load()
		got := fmt.Sprint(b.probes.Load(), r.URL, r.Header["Authorization"], r.Header["Impersonate-User"], r.Header["X-Other"])
		want := "2 /apis/example.com/v1/namespaces/ns/things?allowWatchBookmarks=true&fieldSelector=metadata.name%3Da&" +
			"resourceVersionMatch=NotOlderThan&sendInitialEvents=true&timeoutSeconds=1&watch=true [Bearer client-token] [jane] []"
		if got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
	})
}

// While kube-apiserver does not answer a client that it has never accepted, nothing is known of the server.
func TestStreamingListStranger(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		var slow atomic.Bool
		b := &backend{answer: func(w http.ResponseWriter, r *http.Request) {
			if slow.Load() {
				<-r.Context().Done()
			}
			streams(thingAdded, endMark)(w, r)
		}}
		b.behind(p)
		for _, code := range []int{422, 422, 200} {
			slow.Store(code == 422)
			ask := bubble.Request{Target: streamed, Header: []string{"Accept", "application/yaml"}, Token: bubble.ClientToken}
			if resp := p.Send(ask).Response(); resp.StatusCode != code {
				t.Errorf("got %d, want %d", resp.StatusCode, code)
			}
		}
		if n := b.probes.Load(); n != 3 {
			t.Errorf("the server was asked %d times, want 3", n)
		}
	})
}

// A server that has been replaced is asked again, and no client waits for that.
func TestStreamingListsChange(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		const endless, ended, down = 0, 1, 2
		var now atomic.Int32
		b := &backend{answer: func(w http.ResponseWriter, r *http.Request) {
			switch now.Load() {
			case endless:
				streams(thingAdded)(w, r)
			case ended:
				streams(thingAdded, endMark)(w, r)
			default:
				w.WriteHeader(http.StatusServiceUnavailable)
			}
		}}
		b.behind(p)
		for i, step := range []struct {
			server int32
			after  time.Duration
			codes  []int // of clients one after the other
			probes int32 // in all
		}{
			{endless, 0, []int{422, 422}, 1},
			{ended, 20 * time.Second, []int{422}, 1},
			{ended, 20 * time.Second, []int{422, 200, 200}, 2},
			{down, time.Minute, []int{503, 503}, 2},
			{endless, time.Minute, []int{200}, 3},
			{endless, 2 * time.Second, []int{422}, 3},
			{ended, 11 * time.Minute, []int{200}, 4},
		} {
			now.Store(step.server)
			time.Sleep(step.after)
			for _, code := range step.codes {
				begin := time.Now()
				if resp := list(p, streamed).Response(); resp.StatusCode != code {
					t.Errorf("step %d: got %d, want %d", i, resp.StatusCode, code)
				}
				if waited := time.Since(begin); i > 0 && waited > 0 {
					t.Errorf("step %d: the client waited %s", i, waited)
				}
				synctest.Wait()
			}
			if n := b.probes.Load(); n != step.probes {
				t.Errorf("step %d: the server was asked %d times, want %d", i, n, step.probes)
			}
		}
	})
}

// The handshake of a WebSocket is refused too.
func TestStreamingListWebSocket(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.Up.OnClients(upgrade(t, "websocket", func(_ io.Writer, rw io.Reader) { _, _ = io.Copy(io.Discard, rw) }))
		p.Up.On(proxytest.WatchList, 1, func(c *proxytest.Call) { streams(thingAdded)(c.W, c.R) })
		resp, body := p.Get(streamed, "Accept", "application/yaml", "Connection", "Upgrade", "Upgrade", "websocket", "Sec-WebSocket-Version", "13",
			"Sec-WebSocket-Key", "dGhlIHNhbXBsZSBub25jZQ==", "Origin", "http://localhost")
		if resp.StatusCode != http.StatusUnprocessableEntity || !strings.Contains(body, `"reason":"Invalid"`) {
			t.Errorf("got %d %s", resp.StatusCode, body)
		}
	})
}
