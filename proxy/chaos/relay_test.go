package chaos_test

import (
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"
)

// relay stands between watchfan and kube-apiserver and is the network's faults: it resets connections, holds what is sent, delays it, or
// forgets a connection whose other end never hears of that.
type relay struct {
	listener net.Listener
	to       string

	delay atomic.Int64 // of each chunk; nanoseconds

	mu    sync.Mutex
	held  chan struct{} // not nil while nothing passes; closed when it passes again
	pairs map[*pair]struct{}

	withheld atomic.Int64 // bytes that have waited for the end of a cut
	delayed  atomic.Int64 // bytes
}

// pair is a connection of watchfan's and the one to kube-apiserver that goes with it.
type pair struct {
	near, far *net.TCPConn
	forgotten atomic.Bool
}

func newRelay(l net.Listener, to string) *relay {
	r := &relay{listener: l, to: to, pairs: make(map[*pair]struct{})}
	go r.serve()
	return r
}

func (r *relay) serve() {
	for {
		conn, err := r.listener.Accept()
		if err != nil {
			return // closed
		}
		go r.carry(conn.(*net.TCPConn))
	}
}

func (r *relay) close() {
	_ = r.listener.Close()
	r.release()
	r.reset()
}

func (r *relay) carry(near *net.TCPConn) {
	far, err := net.Dial("tcp", r.to)
	if err != nil { // nobody listens there: as it would be without us
		_ = near.SetLinger(0)
		_ = near.Close()
		return
	}
	p := &pair{near: near, far: far.(*net.TCPConn)}
	r.mu.Lock()
	r.pairs[p] = struct{}{}
	r.mu.Unlock()
	var both sync.WaitGroup
	both.Go(func() { r.copy(p, p.far, p.near) })
	both.Go(func() { r.copy(p, p.near, p.far) })
	both.Wait()
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.pairs, p)
}

// copy carries bytes one way until either end is closed, then closes both. The far end's close does not reach who is forgotten.
func (r *relay) copy(p *pair, to, from *net.TCPConn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		r.pass(n)
		if p.forgotten.Load() {
			_ = p.far.Close()
			if from == p.near && err == nil {
				continue // what it says goes nowhere
			}
			if from == p.far {
				return
			}
		}
		if n > 0 {
			if _, err := to.Write(buffer[:n]); err != nil {
				break
			}
		}
		if err != nil {
			if err != io.EOF {
				_ = to.SetLinger(0)
			}
			break
		}
	}
	_ = p.near.Close()
	_ = p.far.Close()
}

// pass waits as long as the network's faults have n bytes wait.
func (r *relay) pass(n int) {
	r.mu.Lock()
	held := r.held
	r.mu.Unlock()
	if held != nil {
		r.withheld.Add(int64(n))
		<-held
	}
	if d := time.Duration(r.delay.Load()); d > 0 && n > 0 {
		r.delayed.Add(int64(n))
		time.Sleep(d)
	}
}

// hold lets nothing pass until release.
func (r *relay) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held == nil {
		r.held = make(chan struct{})
	}
}

func (r *relay) release() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held != nil {
		close(r.held)
		r.held = nil
	}
}

// reset resets all connections at both ends, and returns how many there were.
func (r *relay) reset() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	for p := range r.pairs {
		_ = p.near.SetLinger(0)
		_ = p.far.SetLinger(0)
		_ = p.near.Close()
		_ = p.far.Close()
	}
	return len(r.pairs)
}

// forget closes all connections to kube-apiserver, of which watchfan hears nothing, ever. It returns how many there were.
func (r *relay) forget() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	n := 0
	for p := range r.pairs {
		if !p.forgotten.Swap(true) {
			n++
			_ = p.far.Close()
		}
	}
	return n
}
