package proxy_test

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/gate/audit"
	"github.com/watchfan/watchfan/proxy/operate/diagnose"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/bubble"
)

// Many clients of one program list a few objects. A few lists pass through. Then a cache answers the others,
// with few proofs. Those of one client all ask kube-apiserver at once.
func TestManyClientsAsk(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		p.CMs.Put("ns", "a", "1")
		list := func(client, agent string) {
			resp, body := p.Send(bubble.Request{Target: "/api/v1/namespaces/ns/configmaps", Token: bubble.ClientToken, From: client,
				Header: []string{"User-Agent", agent}}).Read()
			if resp.StatusCode != http.StatusOK || !strings.Contains(body, `"name":"a"`) {
				t.Errorf("%s: %s", resp.Status, body)
			}
		}
		const clients, seconds = 100, 20
		asked := func(many bool) int {
			before := len(p.Up.All())
			for i := range seconds * clients {
				from := "10.0.0.1"
				if many {
					from = fmt.Sprintf("10.0.0.%d", i%clients)
				}
				go list(from, fmt.Sprintf("agent-%t/1", many))
				time.Sleep(time.Second / clients)
			}
			time.Sleep(time.Second)
			return len(p.Up.All()) - before
		}
		one, many := asked(false), asked(true)
		if most := 64 + 10 + 10*seconds; many > most || one < seconds*clients {
			t.Errorf("of %d lists of one client %d reached kube-apiserver, of many clients %d; want at most %d",
				seconds*clients, one, many, most)
		}
	}, func(o *proxy.Options) { o.Consumers.EasyReads = 1 })
}

// A program that comes later may have a few reads pass through, and more get 429. A program from before, and
// members of a chosen group, have any number. Writes are not counted. The operator sees who, and why.
func TestNewProgram(t *testing.T) {
	bubble.Test(t, func(t *testing.T, p *bubble.Proxy) {
		const target = "/api/v1/configmaps?fieldSelector=unknown%3Dx" // no cache answers it
		ask := func(agent, token, method string) *http.Response {
			resp, _ := p.Send(bubble.Request{Method: method, Target: target, Token: token, Header: []string{"User-Agent", agent}}).Read()
			return resp
		}
		refused := func(agent, token, method string) (n int) {
			for range 100 {
				resp := ask(agent, token, method)
				if resp.StatusCode == http.StatusTooManyRequests {
					if n++; resp.Header.Get("Retry-After") == "" {
						t.Error("429 without Retry-After")
					}
				}
			}
			return n
		}
		ask("old/1", bubble.ClientToken, http.MethodGet)
		time.Sleep(11 * time.Minute)
		if n := refused("old/2", bubble.ClientToken, http.MethodGet); n != 0 {
			t.Errorf("%d reads of a known program are refused", n)
		}
		if n := refused("new/1", bubble.ClientToken, http.MethodDelete); n != 0 {
			t.Errorf("%d writes are refused", n)
		}
		if n := refused("new/1", bubble.ClientToken, http.MethodGet); n < 50 || n > 70 {
			t.Errorf("%d of 100 reads of a new program are refused, want about 60", n)
		}
		if lines := p.Log.With("Limited a new program", "program=new"); len(lines) != 1 {
			t.Errorf("the log has %q", lines)
		}
		var d diagnose.DebugConsumers
		p.AdminJSON(diagnose.ConsumersPath, &d)
		for _, c := range d.Consumers {
			if c.Program == "new" && (c.Rejected == 0 || c.Budget != 4) {
				t.Errorf("the page shows %+v", c)
			}
		}
		_, text := p.Admin(diagnose.ConsumersPath)
		if !strings.Contains(text, "new: at most 4 reads a second pass through") {
			t.Errorf("the page says:\n%s", text)
		}
	}, func(o *proxy.Options) { o.Consumers.NewConsumerReads = 4 })
}

// kube-apiserver does not suffer because clients are slow to send their bodies, or leave, because a disruption budget
// permits no eviction, or because the audit log takes nothing. It does when it is slow.
func TestSuffering(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		caFile, jane := clientCertificates(t)
		certified := &tls.ConnectionState{HandshakeComplete: true, PeerCertificates: []*x509.Certificate{jane.Leaf}}
		p := bubble.Start(t, proxytest.NewBubbleServer(t), func(o *proxy.Options) {
			o.Auth.ClientCAFile = caFile
			o.Audit.AuditLogPath, o.Audit.AuditLogMode = "/dev/full", audit.AuditBlockingStrict
		})
		const configMap, eviction = "/api/v1/namespaces/ns/configmaps/a", "/api/v1/namespaces/ns/pods/a/eviction"
		slow := time.Duration(0)
		p.Up.OnClients(func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			time.Sleep(slow)
			if r.URL.Path == eviction {
				w.WriteHeader(http.StatusTooManyRequests)
			}
		})
		for _, c := range []struct {
			name     string
			ask      bubble.Request
			up, body time.Duration
			leaves   bool // when the body has been sent
			suffers  bool
		}{
			{"slow bodies", bubble.Request{Method: http.MethodPut, Target: configMap, Length: 2}, 0, 2 * time.Second, false, false},
			{"evictions", bubble.Request{Method: http.MethodPost, Target: eviction, Length: 2}, 0, 0, false, false},
			{"a full audit log", bubble.Request{Method: http.MethodDelete, Target: configMap, TLS: certified}, 0, 0, false, false},
			{"clients that leave", bubble.Request{Method: http.MethodPut, Target: configMap, Length: 2},
				800 * time.Millisecond, 900 * time.Millisecond, true, false},
			{"slow answers", bubble.Request{Method: http.MethodPut, Target: configMap, Length: 2}, 2 * time.Second, 0, false, true},
		} {
			time.Sleep(time.Minute)
			synctest.Wait()
			slow = c.up
			for range 20 {
				go func() {
					ask := c.ask
					if ask.Length > 0 {
						var body *io.PipeWriter
						ask.Upload, body = io.Pipe()
						go func() {
							time.Sleep(c.body)
							_, _ = io.WriteString(body, "{}")
							body.Close()
						}()
					}
					client := p.Begin(ask)
					if c.leaves {
						time.Sleep(c.body + time.Millisecond)
						client.Leave()
						return
					}
					client.Read()
				}()
			}
			time.Sleep(5 * time.Second)
			var d diagnose.DebugConsumers
			if p.AdminJSON(diagnose.ConsumersPath, &d); d.Suffers != c.suffers {
				t.Errorf("%s: kube-apiserver suffers: %t", c.name, d.Suffers)
			}
		}
	})
}
