//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
	"time"
)

// A replica is one watchfan of several.
type replica struct {
	child         *child
	secure, admin string

	// Guarded by the balancer's mu.
	ready bool
	conns int
}

// startReplica starts a watchfan with its own directory. Its siblings are the replicas that run.
func startReplica(ctx context.Context, r *rolling, dir, name string) (*replica, error) {
	if err := os.Mkdir(dir, 0o700); err != nil {
		return nil, err
	}
	flags := []string{"--insecure-port=0", "--shutdown-delay-duration=" + r.opts.Delay.String(),
		"--drain-duration=" + r.opts.Drain.String(), "--max-connection-age=" + r.opts.MaxAge.String()}
	var siblings []string
	for _, p := range r.replicas {
		siblings = append(siblings, p.secure)
	}
	if r.opts.Seeds && len(siblings) > 0 {
		flags = append(flags, "--seed-from="+strings.Join(siblings, ","))
	}
	c, ports, err := startWatchfan(ctx, dir, name, r.opts.Watchfan, r.cluster.kubeconfig, r.certificate, flags...)
	if err != nil {
		return nil, err
	}
	return &replica{child: c, secure: ports.Secure, admin: ports.Admin}, nil
}

// isReady reports whether /readyz answers 200.
func (p *replica) isReady() bool {
	client := http.Client{Timeout: time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	resp, err := client.Get("http://" + p.admin + "/readyz")
	if err != nil {
		return false
	}
	resp.Body.Close()
	return resp.StatusCode == http.StatusOK
}

func (p *replica) awaitReady(ctx context.Context) error {
	for deadline := time.Now().Add(time.Minute); !p.isReady(); {
		if time.Now().After(deadline) {
			return fmt.Errorf("%s is not ready: %s", p.child.name, p.child.tail())
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return err
		}
	}
	return p.child.alive()
}

// A balancer connects each client to a random replica among those that are ready, as a Service
// does.
type balancer struct {
	ln   net.Listener
	stop context.CancelFunc
	wg   sync.WaitGroup

	mu       sync.Mutex
	replicas []*replica
	open     map[net.Conn]struct{}
}

// readyEvery is the interval between two requests for /readyz. A replica that shuts down gets new
// connections for about that long.
const readyEvery = 500 * time.Millisecond

func newBalancer() (*balancer, error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, stop := context.WithCancel(context.Background())
	b := &balancer{ln: ln, stop: stop, open: make(map[net.Conn]struct{})}
	b.wg.Go(b.accept)
	b.wg.Go(func() {
		for sleep(ctx, readyEvery) == nil {
			b.look()
		}
	})
	return b, nil
}

func (b *balancer) addr() netip.AddrPort { return b.ln.Addr().(*net.TCPAddr).AddrPort() }

func (b *balancer) close() {
	b.stop()
	_ = b.ln.Close()
	b.mu.Lock()
	for c := range b.open {
		_ = c.Close()
	}
	b.mu.Unlock()
	b.wg.Wait()
}

func (b *balancer) add(p *replica) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replicas = append(b.replicas, p)
}

func (b *balancer) remove(p *replica) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.replicas = slices.DeleteFunc(b.replicas, func(q *replica) bool { return p == q })
}

// count returns the number of connections of a replica.
func (b *balancer) count(p *replica) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return p.conns
}

// look asks each replica whether it is ready.
func (b *balancer) look() {
	b.mu.Lock()
	all := slices.Clone(b.replicas)
	b.mu.Unlock()
	for _, p := range all {
		ready := p.isReady()
		b.mu.Lock()
		p.ready = ready
		b.mu.Unlock()
	}
}

func (b *balancer) accept() {
	for {
		c, err := b.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // too many open files, for a moment
			time.Sleep(10 * time.Millisecond)
			continue
		}
		b.wg.Go(func() { b.join(c) })
	}
}

// choose returns a ready replica and counts one more connection for it, or nil if none is ready.
func (b *balancer) choose(client net.Conn) *replica {
	b.mu.Lock()
	defer b.mu.Unlock()
	var ready []*replica
	for _, p := range b.replicas {
		if p.ready {
			ready = append(ready, p)
		}
	}
	if len(ready) == 0 {
		return nil
	}
	p := ready[rand.IntN(len(ready))]
	p.conns++
	b.open[client] = struct{}{}
	return p
}

// join connects a client to a replica until either of them closes.
func (b *balancer) join(client net.Conn) {
	defer client.Close()
	p := b.choose(client)
	if p == nil {
		return
	}
	defer func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		p.conns--
		delete(b.open, client)
	}()
	server, err := net.Dial("tcp", p.secure)
	if err != nil {
		return
	}
	defer server.Close()
	done := make(chan struct{})
	go func() {
		carry(server, client) // one side's end ends the other side
		_ = server.(*net.TCPConn).CloseWrite()
		close(done)
	}()
	carry(client, server)
	_ = client.Close()
	<-done
}

// carry copies until one side ends. It hides the types of the connections, because splice(2) would
// take two more file descriptors for each.
func carry(to io.Writer, from io.Reader) {
	_, _ = io.CopyBuffer(struct{ io.Writer }{to}, struct{ io.Reader }{from}, make([]byte, 4<<10))
}
