package e2e_test

import (
	"bytes"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

// relay is a TCP relay to kube-apiserver that can be told to fail as networks do.
type relay struct {
	listener net.Listener

	mu      sync.Mutex
	backend string        // of connections to come
	dropped bool          // what comes, from either side, is acknowledged and lost
	late    time.Duration // what comes is passed on that much later
	conns   map[*net.TCPConn]struct{}
}

// newRelay starts a relay to backend, a host and port, until the test ends.
func newRelay(t *testing.T, backend string) *relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	r := &relay{listener: l, backend: backend, conns: make(map[*net.TCPConn]struct{})}
	var running sync.WaitGroup
	running.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			running.Go(func() { r.serve(c.(*net.TCPConn)) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		r.reset()
		running.Wait()
	})
	return r
}

func (r *relay) address() string { return r.listener.Addr().String() }

func (r *relay) serve(client *net.TCPConn) {
	defer client.Close()
	r.mu.Lock()
	backend := r.backend
	r.mu.Unlock()
	c, err := net.DialTimeout("tcp", backend, 5*time.Second)
	if err != nil {
		return
	}
	server := c.(*net.TCPConn)
	defer server.Close()
	r.mu.Lock()
	r.conns[client], r.conns[server] = struct{}{}, struct{}{}
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.conns, client)
		delete(r.conns, server)
	}()
	var both sync.WaitGroup
	both.Go(func() { r.copy(server, client) })
	both.Go(func() { r.copy(client, server) })
	both.Wait()
}

// copy relays one direction. A side that ends ends the other, unless it is to notice nothing.
func (r *relay) copy(to, from *net.TCPConn) {
	type part struct {
		bytes []byte
		due   time.Time
	}
	parts := make(chan part, 4096)
	var writing sync.WaitGroup
	writing.Go(func() {
		broken := false
		for p := range parts {
			time.Sleep(time.Until(p.due))
			if !broken {
				_, err := to.Write(p.bytes)
				broken = err != nil
			}
		}
	})
	defer writing.Wait()
	defer close(parts)
	buf := make([]byte, 64<<10)
	for {
		n, err := from.Read(buf)
		r.mu.Lock()
		dropped, delay := r.dropped, r.late
		r.mu.Unlock()
		if n > 0 && !dropped {
			parts <- part{bytes.Clone(buf[:n]), time.Now().Add(delay)}
		}
		if err != nil {
			if !dropped {
				to.Close()
			}
			return
		}
	}
}

// to sends connections to come to another backend.
func (r *relay) to(backend string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.backend = backend
}

// drop loses what comes on each connection, or no longer does; what was lost stays lost.
func (r *relay) drop(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.dropped = on
}

// delay passes on what comes that much later.
func (r *relay) delay(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.late = d
}

// reset breaks all connections, in the middle of whatever they carry.
func (r *relay) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	for c := range r.conns {
		_ = c.SetLinger(0)
		c.Close()
	}
}

// serverAddress is kube-apiserver's host and port.
func (c *cluster) serverAddress(t testing.TB) string {
	t.Helper()
	u, err := url.Parse(c.Ready.Server)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

// through returns the flag that has a watchfan find kube-apiserver behind a relay.
func (c *cluster) through(t testing.TB, r *relay) string {
	t.Helper()
	config, err := os.ReadFile(c.Ready.Kubeconfigs["admin"])
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(config), c.Ready.Server) {
		t.Fatalf("the kubeconfig does not name %s", c.Ready.Server)
	}
	path := filepath.Join(t.TempDir(), "kubeconfig")
	if err := os.WriteFile(path, []byte(strings.ReplaceAll(string(config), c.Ready.Server, "https://"+r.address())), 0o600); err != nil {
		t.Fatal(err)
	}
	return "--kubeconfig=" + path
}
