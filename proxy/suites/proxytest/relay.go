package proxytest

import (
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Relay is a TCP relay that fails as networks do. Its methods may be called from any goroutine.
//
// A fault concerns the open connections and those to come, in both directions:
//
//	Delay    bytes arrive late
//	Hold     bytes wait until Release
//	Drop     bytes are acknowledged and lost
//	Forget   the open connections are closed at the backend alone
//	Reset    the open connections are reset at both ends
//
// Held, Delayed and Lost prove that a fault has happened, and Opened that clients have come.
type Relay struct {
	Held, Delayed, Lost atomic.Int64 // bytes so far
	Opened              atomic.Int64 // connections so far

	listener net.Listener
	running  sync.WaitGroup // every goroutine

	mu       sync.Mutex
	backends []string      // host:port of connections to come, in turn
	turn     int           // which is next
	delay    time.Duration // of each part that is read
	held     chan struct{} // closed by Release; nil while nothing is held
	drop     bool
	closed   bool
	resets   int // calls of Reset
	pairs    map[*pair]struct{}
}

// pair is a client's connection and the connection to the backend that belongs to it.
type pair struct {
	client, backend *net.TCPConn
	forgotten       atomic.Bool // nothing passes any more, and neither end hears of the other
}

// NewRelay starts a relay on loopback to backend, a host and port. It ends with the test.
func NewRelay(t testing.TB, backend string) *Relay {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return NewRelayAt(t, l, backend)
}

// NewRelayAt is NewRelay with a TCP listener of the caller's, which the relay closes.
func NewRelayAt(t testing.TB, l net.Listener, backend string) *Relay {
	r := &Relay{listener: l, backends: []string{backend}, pairs: make(map[*pair]struct{})}
	r.running.Go(r.accept)
	t.Cleanup(r.close)
	return r
}

// Address returns the host and port that the relay listens on.
func (r *Relay) Address() string { return r.listener.Addr().String() }

func (r *Relay) accept() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return // closed
		}
		r.Opened.Add(1)
		r.running.Go(func() { r.carry(conn.(*net.TCPConn)) })
	}
}

func (r *Relay) close() {
	_ = r.listener.Close()
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.Release()
	r.Reset()
	r.running.Wait()
}

// carry relays one connection until it ends. A connection that the backend refuses is reset.
func (r *Relay) carry(client *net.TCPConn) {
	r.mu.Lock()
	address, resets := r.backends[r.turn%len(r.backends)], r.resets
	r.turn++
	r.mu.Unlock()
	conn, err := net.DialTimeout("tcp", address, 5*time.Second)
	if err != nil {
		_ = client.SetLinger(0)
		_ = client.Close()
		return
	}
	p := &pair{client: client, backend: conn.(*net.TCPConn)}
	defer p.close()
	r.mu.Lock()
	if r.closed || r.resets != resets {
		r.mu.Unlock()
		p.reset()
		return
	}
	r.pairs[p] = struct{}{}
	r.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { r.copy(p, p.backend, p.client) })
	both.Go(func() { r.copy(p, p.client, p.backend) })
	both.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pairs, p)
}

// copy relays one direction until one end has ended, and then ends the other in the same way. If
// that happens while bytes are lost, the other end does not hear of it.
func (r *Relay) copy(p *pair, to, from *net.TCPConn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		lost := r.await(n)
		if lost || p.forgotten.Load() {
			r.Lost.Add(int64(n))
			if err != nil {
				p.forgotten.Store(true)
				return
			}
			continue
		}
		if n > 0 {
			if _, failed := to.Write(buffer[:n]); failed != nil {
				err = failed
			}
		}
		if err != nil {
			if err != io.EOF && !errors.Is(err, net.ErrClosed) {
				_ = to.SetLinger(0)
			}
			p.close()
			return
		}
	}
}

// await waits for as long as n bytes are held and delayed, and reports whether they are lost.
func (r *Relay) await(n int) (lost bool) {
	r.mu.Lock()
	held := r.held
	r.mu.Unlock()
	if held != nil {
		r.Held.Add(int64(n))
		<-held
	}
	r.mu.Lock()
	delay, lost := r.delay, r.drop
	r.mu.Unlock()
	if delay > 0 && n > 0 {
		r.Delayed.Add(int64(n))
		time.Sleep(delay) //testlint:allow timer the fault that a test asks for
	}
	return lost
}

func (p *pair) close() {
	_ = p.client.Close()
	_ = p.backend.Close()
}

func (p *pair) reset() {
	_ = p.client.SetLinger(0)
	_ = p.backend.SetLinger(0)
	p.close()
}

// Redirect sends connections to come to other backends. Of several, as behind a load balancer, each has
// the next connection.
func (r *Relay) Redirect(backends ...string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.backends = backends
}

// Delay holds back each part of at most 32 KiB for d before the next is read. The network is then
// slow, and narrow. 0 ends the delay.
func (r *Relay) Delay(d time.Duration) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.delay = d
}

// Hold lets nothing pass until Release. Connections are still accepted.
func (r *Relay) Hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held == nil {
		r.held = make(chan struct{})
	}
}

// Release passes on what was held.
func (r *Relay) Release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held != nil {
		close(r.held)
		r.held = nil
	}
}

// Drop begins to lose what comes, or stops. What was lost stays lost, and a connection that ended
// at one side meanwhile stays open at the other.
func (r *Relay) Drop(on bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.drop = on
}

// Reset resets all connections at both ends, in the middle of what they carry, and returns how many
// there were. So it does with those that are being made.
func (r *Relay) Reset() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.resets++
	for p := range r.pairs {
		p.reset()
	}
	return len(r.pairs)
}

// Forget closes all connections at the backend. The clients do not hear of it, and what they send
// is lost. It returns how many connections there were, without those forgotten before.
func (r *Relay) Forget() (n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.pairs {
		if !p.forgotten.Swap(true) {
			n++
			_ = p.backend.Close()
		}
	}
	return n
}
