package proxy_test

import (
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"time"

	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/proxytest"
)

// A web page whose name resolves to 127.0.0.1, or that sends requests there, cannot read the admin
// port.
func TestAdminForeignHost(t *testing.T) {
	t.Parallel()
	f := startFront(t, nil, func(o *proxy.Options, _ *clientcmdapi.Config) { o.AdminPort = proxy.AnyPort })
	_, port, err := net.SplitHostPort(f.admin)
	if err != nil {
		t.Fatal(err)
	}
	get := func(path, host, name, value string) int {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://"+f.admin+path, nil)
		if err != nil {
			t.Fatal(err)
		}
		req.Host = host
		if value != "" {
			req.Header.Set(name, value)
		}
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		return resp.StatusCode
	}
	for _, path := range []string{"/", "/statusz", "/livez", "/readyz", "/metrics", "/debug/lanes", "/debug/history", "/debug/watchers",
		"/debug/pprof/", "/debug/pprof/heap", "/nosuch"} {
		for _, host := range []string{"localhost", "localhost:" + port, "127.0.0.1:" + port,
			"[::1]:" + port, "LOCALHOST"} {
			if code := get(path, host, "", ""); code == http.StatusForbidden {
				t.Errorf("%s of %s: %d", path, host, code)
			}
		}
		for _, foreign := range [][2]string{{"pages.example", ""}, {"pages.example:" + port, ""},
			{"localhost.pages.example", ""}, {"10.1.1.1", ""},
			{"localhost", "http://pages.example"}, {"localhost", "null"},
			{"localhost:" + port, "http://localhost:3000"}, {"localhost:" + port, "http://127.0.0.1:" + port}} {
			if code := get(path, foreign[0], "Origin", foreign[1]); code != http.StatusForbidden {
				t.Errorf("%s of %s from %q: %d, want 403", path, foreign[0], foreign[1], code)
			}
		}
		// The status page asks for its own files and for the pages under /debug.
		for site, allowed := range map[string]bool{"none": true, "same-origin": true, "same-site": false,
			"cross-site": false} {
			if code := get(path, "localhost:"+port, "Sec-Fetch-Site", site); (code != http.StatusForbidden) != allowed {
				t.Errorf("%s with Sec-Fetch-Site %s: %d", path, site, code)
			}
		}
		if code := get(path, "localhost:"+port, "Origin", "http://localhost:"+port); code == http.StatusForbidden {
			t.Errorf("%s with its own Origin: %d", path, code)
		}
	}
	http.DefaultClient.CloseIdleConnections()
}

// A request for a host of another name is refused, whether the Host header names it or the target.
// Text in the target that only looks like a host changes nothing.
func TestInsecureForeignHost(t *testing.T) {
	t.Parallel()
	f := startFront(t, upstreamFunc(t, func(http.ResponseWriter, *http.Request) {}))
	for head, want := range map[string]int{
		"GET http://localhost/version HTTP/1.1\nHost: localhost\n\n":     200,
		"GET http://localhost/version HTTP/1.1\nHost: pages.example\n\n": 403,
		"GET http://pages.example/version HTTP/1.1\nHost: localhost\n\n": 403,
		"GET //localhost://x/version HTTP/1.1\nHost: pages.example\n\n":  403,
		"GET /?://localhost/version HTTP/1.1\nHost: pages.example\n\n":   403,
		"GET /version HTTP/1.1\nHost: pages.example@localhost\n\n":       400,
	} {
		c := f.dial()
		c.send("%s", strings.ReplaceAll(head, "\n", "\r\n"))
		if resp, _ := c.response(); resp.StatusCode != want {
			t.Errorf("%q: %d, want %d", head, resp.StatusCode, want)
		}
	}
}

// A client has headerTimeout for the whole head, and for the TLS handshake, even if it sends a byte
// now and then.
func TestSlowClients(t *testing.T) {
	t.Parallel()
	f := startServer(t, nil, func(s *proxy.Server) { s.SetHeaderTimeout(300 * time.Millisecond) },
		func(o *proxy.Options, _ *clientcmdapi.Config) {
			o.SecurePort, o.BindAddress = proxy.AnyPort, "127.0.0.1"
		})
	// The record's header of a ClientHello, and a part of it.
	hello := "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + strings.Repeat("\x00", 400)
	for name, c := range map[string]struct{ address, begin, drop, want string }{
		"nothing":      {f.insecure, "", "", ""},
		"nothing, TLS": {f.secure, "", "", ""},
		"a slow head":  {f.insecure, "GET /version HTTP/1.1\r\nHost: localhost\r\nX: ", "x", "HTTP/1.1 408"},
		"slow headers": {f.insecure, "GET /version HTTP/1.1\r\nHost: localhost\r\n", "A: b\r\n", "HTTP/1.1 408"},
		"a slow short body": {f.insecure, "POST /version HTTP/1.1\r\nHost: localhost\r\nContent-Length: 8000\r\n\r\n",
			"x", "HTTP/1.1 408"},
		"a slow handshake": {f.secure, hello[:20], hello[20:21], ""},
		"a cut handshake":  {f.secure, hello[:20], "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			conn, err := net.Dial("tcp", c.address)
			if err != nil {
				t.Fatal(err)
			}
			defer conn.Close()
			end := make(chan struct{})
			defer close(end)
			go func() {
				_, err := io.WriteString(conn, c.begin)
				for err == nil {
					select {
					case <-end:
						return
					case <-time.After(20 * time.Millisecond):
						_, err = io.WriteString(conn, c.drop)
					}
				}
			}()
			_ = conn.SetReadDeadline(time.Now().Add(20 * time.Second))
			got, err := io.ReadAll(conn)
			if network, ok := err.(net.Error); ok && network.Timeout() {
				t.Fatal("the connection is still open")
			}
			if !strings.HasPrefix(string(got), c.want) || c.want == "" && len(got) > 0 {
				t.Errorf("got %q, want %s", got, c.want)
			}
		})
	}
}

// A connection above --max-connections is reset at once. When another connection ends, a new one is
// accepted.
func TestMaxConnections(t *testing.T) {
	t.Parallel()
	f := startFront(t, upstreamFunc(t, func(http.ResponseWriter, *http.Request) {}),
		func(o *proxy.Options, _ *clientcmdapi.Config) {
			o.SecurePort, o.BindAddress, o.AdminPort, o.Downstream.MaxConnections = proxy.AnyPort,
				"127.0.0.1", proxy.AnyPort, 3
		})
	var open []*rawConn
	for range 3 {
		c := f.dial()
		c.send("GET /version HTTP/1.1\nHost: localhost\n\n")
		if resp, _ := c.response(); resp.StatusCode != http.StatusOK {
			t.Fatalf("within the bound: %s", resp.Status)
		}
		open = append(open, c)
	}
	for range 3 {
		conn, err := net.Dial("tcp", f.insecure)
		if err != nil {
			continue // reset already
		}
		c := newRawConn(t, conn)
		if n, err := c.Read(make([]byte, 1)); err == nil {
			t.Fatalf("beyond the bound: read %d bytes", n)
		} else if network, ok := err.(net.Error); ok && network.Timeout() {
			t.Fatal("beyond the bound: it is neither answered nor closed")
		}
	}
	if conn, err := tls.Dial("tcp", f.secure, &tls.Config{InsecureSkipVerify: true}); err == nil {
		conn.Close()
		t.Error("beyond the bound: a TLS handshake")
	}
	resp, err := http.Get("http://" + f.admin + "/livez")
	if err != nil || resp.StatusCode != http.StatusOK {
		t.Fatalf("the admin port: %v", err)
	}
	resp.Body.Close()
	http.DefaultClient.CloseIdleConnections()

	open[0].Close()
	for deadline := time.Now().Add(proxytest.Patience); ; time.Sleep(10 * time.Millisecond) {
		if c, err := net.Dial("tcp", f.insecure); err == nil {
			_ = c.SetDeadline(time.Now().Add(proxytest.Patience))
			_, _ = io.WriteString(c, "GET /version HTTP/1.0\r\n\r\n")
			got, _ := io.ReadAll(c)
			c.Close()
			if strings.HasPrefix(string(got), "HTTP/1.1 200") {
				break
			}
		}
		if time.Now().After(deadline) {
			t.Fatal("there is no room again")
		}
	}
}

// The secure port serves TLS 1.2 and 1.3 with Go's secure ciphers. The insecure port listens on the
// loopback address only.
func TestTransport(t *testing.T) {
	t.Parallel()
	f := startFront(t, nil, func(o *proxy.Options, _ *clientcmdapi.Config) {
		o.SecurePort, o.BindAddress = proxy.AnyPort, "0.0.0.0"
	})
	if host, _, _ := net.SplitHostPort(f.insecure); host != "127.0.0.1" {
		t.Errorf("the insecure port is at %s", f.insecure)
	}
	_, port, _ := net.SplitHostPort(f.secure)
	var weak []uint16
	for _, c := range tls.InsecureCipherSuites() {
		weak = append(weak, c.ID)
	}
	for name, c := range map[string]struct {
		config *tls.Config
		good   bool
	}{
		"1.3":          {&tls.Config{MinVersion: tls.VersionTLS13}, true},
		"1.2":          {&tls.Config{MaxVersion: tls.VersionTLS12}, true},
		"1.1":          {&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS11}, false},
		"1.0":          {&tls.Config{MinVersion: tls.VersionTLS10, MaxVersion: tls.VersionTLS10}, false},
		"weak ciphers": {&tls.Config{MaxVersion: tls.VersionTLS12, CipherSuites: weak}, false},
		"HTTP/2 only":  {&tls.Config{NextProtos: []string{"h2"}}, true},
		"HTTP/3 only":  {&tls.Config{NextProtos: []string{"h3"}}, false},
	} {
		c.config.InsecureSkipVerify = true
		conn, err := tls.Dial("tcp", "127.0.0.1:"+port, c.config)
		if (err == nil) != c.good {
			t.Errorf("%s: %v", name, err)
		}
		if err == nil {
			conn.Close()
		}
	}
	// Plain HTTP to the TLS port gets no answer that a client could take for one of the API's.
	conn, err := net.Dial("tcp", "127.0.0.1:"+port)
	if err != nil {
		t.Fatal(err)
	}
	c := newRawConn(t, conn)
	c.send("GET /version HTTP/1.1\nHost: localhost\n\n")
	if got, _ := io.ReadAll(c); strings.HasPrefix(string(got), "HTTP/1.1 200") {
		t.Errorf("plain HTTP on the secure port: %q", got)
	}
}
