package passthrough_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

const followLog = "/api/v1/namespaces/ns/pods/web/log?follow=true"

func flush(w http.ResponseWriter) { w.(http.Flusher).Flush() }

// The response is upstream's. Nothing is added, repeated headers stay separate, and nothing is
// decompressed.
func TestResponseUnchanged(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.Up.OnClients(func(w http.ResponseWriter, r *http.Request) {
			w.Header().Add("Warning", `299 - "one"`)
			w.Header().Add("Warning", `299 - "two"`)
			w.Header().Set("Keep-Alive", "timeout=5")
			w.Header().Set("Content-Encoding", "gzip")
			w.Header()["Content-Type"] = nil
			w.Header().Set("Date", "Mon, 02 Jan 2006 15:04:05 GMT")
			w.WriteHeader(http.StatusTeapot)
			io.WriteString(w, "\x1f\x8bnot really")
		})
		for _, target := range []string{"/version", followLog} {
			resp, body := p.Get(target)
			got := fmt.Sprintf("%d %v %q", resp.StatusCode, resp.Header, body)
			want := `418 map[Content-Encoding:[gzip] Date:[Mon, 02 Jan 2006 15:04:05 GMT] Warning:[299 - "one" 299 - "two"]] ` +
				`"\x1f\x8bnot really"`
			if got != want {
				t.Errorf("%s: got  %s\nwant %s", target, got, want)
			}
		}
	})
}

// The head of a response, and then each piece of it, comes at once.
func TestResponseStreams(t *testing.T) {
	for name, target := range map[string]string{
		"log":     followLog,
		"watch":   "/api/v1/pods?watch=1",
		"chunked": "/openapi/v2",
		"length":  "/version",
	} {
		bubble.Row(t, name, func(t *testing.T, p *bubble.Proxy) {
			next := make(chan string)
			p.Up.OnClients(func(w http.ResponseWriter, r *http.Request) {
				if name == "length" {
					w.Header().Set("Content-Length", "10")
				}
				flush(w)
				for s := range next {
					io.WriteString(w, s)
					flush(w)
				}
			})
			resp := p.Send(bubble.Request{Target: target, Header: []string{"Accept", proxytest.TableAccept}}).Response()
			got := make([]byte, 5)
			for _, s := range []string{"hello", "world"} {
				next <- s
				if _, err := io.ReadFull(resp.Body, got); err != nil || string(got) != s {
					t.Fatalf("got %q, %v, want %q", got, err, s)
				}
			}
			close(next)
			if n, err := resp.Body.Read(got); n != 0 || err != io.EOF {
				t.Errorf("at the end got %d bytes, %v", n, err)
			}
		})
	}
}

// A response that breaks off upstream never looks complete to the client.
func TestResponseBreaksOff(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.Up.OnClients(func(w http.ResponseWriter, r *http.Request) {
			if r.URL.Path == "/length" {
				w.Header().Set("Content-Length", "100")
			}
			io.WriteString(w, "part")
			flush(w)
			panic(http.ErrAbortHandler)
		})
		for _, target := range []string{followLog, "/chunked", "/length"} {
			body, err := io.ReadAll(p.Send(bubble.Request{Target: target}).Response().Body)
			if string(body) != "part" || err != io.ErrUnexpectedEOF {
				t.Errorf("%s: got %q, %v, want a part and an unexpected EOF", target, body, err)
			}
		}
	})
}

// A client may repeat what cannot have taken effect. It must not repeat a write that may have arrived.
func TestUnreachable(t *testing.T) {
	const away = "kube-apiserver cannot be reached through this proxy at the moment; if this lasts, see the proxy's /readyz and its log " +
		"for the reason"
	const lost = "kube-apiserver broke off the connection before it answered; the request may or may not have taken effect"
	reads := []bubble.Request{{Target: "/version"}, {Target: followLog}}
	write := bubble.Request{Method: "POST", Target: "/x", Body: "{}"}
	refuse := func(up *proxytest.Server) { up.Pipes.Close() }
	breakOff := func(up *proxytest.Server) {
		up.OnClients(func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	}
	for _, c := range []struct {
		name                string
		fault               func(*proxytest.Server)
		asks                []bubble.Request
		retryAfter, message string
	}{
		{"refused", refuse, append(reads, write), "1", away},
		{"a read is broken off", breakOff, reads, "1", away},
		{"a write is broken off", breakOff, []bubble.Request{write}, "", lost},
	} {
		bubble.Row(t, c.name, func(t *testing.T, p *bubble.Proxy) {
			c.fault(p.Up)
			details := `"code":503}`
			if c.retryAfter != "" {
				details = `"details":{"retryAfterSeconds":` + c.retryAfter + `},"code":503}`
			}
			want := `{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":"` + c.message +
				`","reason":"ServiceUnavailable",` + details + "\n"
			for _, ask := range c.asks {
				ask.Header = []string{"Audit-Id", "abc"}
				resp, body := p.Send(ask).Read()
				if resp.StatusCode != 503 || body != want || resp.Header.Get("Retry-After") != c.retryAfter || resp.Header.Get("Audit-Id") != "abc" {
					t.Errorf("%s: got %d %v %s", ask.Target, resp.StatusCode, resp.Header, body)
				}
			}
		})
	}
}

// A client that leaves ends its request upstream at once, even while nothing is sent, before and after
// upstream's head. If the request does not last, or has a body, short or long, that takes a second.
func TestClientLeaves(t *testing.T) {
	for i := range 12 {
		headFirst, body := i%2 == 0, strings.Repeat("x", []int{0, 2, upstream.MaxKeptBody + 2}[i/2%3])
		ask := bubble.Request{Target: followLog, Body: body}
		if i >= 6 {
			ask.Method, ask.Target = "POST", "/api/v1/namespaces/default/pods"
		}
		bubble.Row(t, fmt.Sprintf("%s,headFirst=%v,body=%d", ask.Method, headFirst, len(body)), func(t *testing.T, p *bubble.Proxy) {
			began, ended := make(chan struct{}), make(chan struct{})
			p.Up.OnClients(func(w http.ResponseWriter, r *http.Request) {
				_, _ = io.Copy(io.Discard, r.Body) // net/http notices no client's end before
				if headFirst {
					flush(w)
				}
				close(began)
				<-r.Context().Done()
				close(ended)
			})
			c := p.Begin(ask)
			<-began
			if headFirst {
				c.Response()
			}
			c.Leave()
			if synctest.Wait(); body != "" || ask.Method != "" {
				time.Sleep(time.Second)
				synctest.Wait()
			}
			select {
			case <-ended:
			default:
				t.Error("the request goes on")
			}
		})
	}
}

// A response that comes before the whole body is passed on, and the rest of the body is not waited for.
func TestEarlyResponse(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.Up.OnClients(func(w http.ResponseWriter, r *http.Request) {
			_ = http.NewResponseController(w).EnableFullDuplex() // else net/http waits for the body
			w.WriteHeader(http.StatusRequestEntityTooLarge)
		})
		r, w := io.Pipe()
		go w.Write(make([]byte, upstream.MaxKeptBody))
		if resp, _ := p.Send(bubble.Request{Method: "POST", Target: "/x", Upload: r, Length: -1}).Read(); resp.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("got %d", resp.StatusCode)
		}
		synctest.Wait() // the body is released behind the response
		if _, err := w.Write([]byte("rest")); err != io.ErrClosedPipe {
			t.Errorf("the rest of the body: %v", err)
		}
	})
}
