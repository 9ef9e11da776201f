//go:build linux

package fanout_test

import (
	"net"
	"sync"
	"sync/atomic"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// entry is one frame of a list as fanout's groups have it: immutable but for next, and what all have passed is garbage.
type entry struct {
	frame framing.Frame
	next  atomic.Pointer[entry]
	grown chan struct{} // closed behind next; nil if nobody waits for channels
}

// take appends to batch the frames behind e that fit into one write, and returns the last of them.
func (e *entry) take(batch [][]byte) ([][]byte, *entry) {
	for bytes := 0; bytes < fanout.MaxBatchBytes; {
		next := e.next.Load()
		if next == nil {
			break
		}
		e = next
		batch = append(batch, e.frame.Body)
		bytes += len(e.frame.Body)
	}
	return batch, e
}

// waitLog is a list that goroutines can wait for.
type waitLog interface {
	last() *entry
	append(framing.Frame)
	// wait waits until something is behind e; false if nothing will be.
	wait(e *entry) bool
	close()
}

// channelLog wakes by a channel that each entry has.
type channelLog struct{ tail *entry }

func newChannelLog() *channelLog { return &channelLog{&entry{grown: make(chan struct{})}} }

func (l *channelLog) last() *entry { return l.tail }

func (l *channelLog) append(f framing.Frame) {
	last, e := l.tail, &entry{frame: f, grown: make(chan struct{})}
	last.next.Store(e)
	l.tail = e
	close(last.grown)
}

func (l *channelLog) wait(e *entry) bool {
	<-e.grown
	return e.next.Load() != nil
}

func (l *channelLog) close() { close(l.tail.grown) }

// condLog wakes by a sync.Cond.
type condLog struct {
	tail   *entry // owned by who appends
	mu     sync.RWMutex
	cond   *sync.Cond
	closed bool // guarded by mu
}

func newCondLog() *condLog {
	l := &condLog{tail: &entry{}}
	l.cond = sync.NewCond(l.mu.RLocker())
	return l
}

func (l *condLog) last() *entry { return l.tail }

func (l *condLog) append(f framing.Frame) {
	e := &entry{frame: f}
	l.mu.Lock()
	l.tail.next.Store(e)
	l.mu.Unlock()
	l.tail = e
	l.cond.Broadcast()
}

func (l *condLog) wait(e *entry) bool {
	if e.next.Load() != nil {
		return true
	}
	l.mu.RLock()
	defer l.mu.RUnlock()
	for e.next.Load() == nil && !l.closed {
		l.cond.Wait()
	}
	return !l.closed
}

func (l *condLog) close() {
	l.mu.Lock()
	l.closed = true
	l.mu.Unlock()
	l.cond.Broadcast()
}

// goroutineWriter has a goroutine for each client, which waits for the list or for the socket.
type goroutineWriter struct {
	log     waitLog
	running sync.WaitGroup
	conns   []net.Conn
	all     []*writerClient
}

func (w *goroutineWriter) clients() []*writerClient { return w.all }

func (w *goroutineWriter) accept(l *net.TCPListener) error {
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	c := &writerClient{}
	w.conns, w.all = append(w.conns, conn), append(w.all, c)
	at := w.log.last()
	w.running.Go(func() { leave(conn) })
	w.running.Go(func() { w.serve(conn, c, at) })
	return nil
}

func (w *goroutineWriter) serve(conn net.Conn, c *writerClient, at *entry) {
	var memory [][]byte
	for w.log.wait(at) {
		var batch net.Buffers
		batch, at = at.take(memory[:0])
		memory = batch
		n := len(batch)
		if _, err := batch.WriteTo(conn); err != nil {
			return
		}
		c.wrote(n)
	}
}

func (w *goroutineWriter) append(ev framing.Event) error {
	w.log.append(ev.Object.Frame(ev.Type))
	return nil
}

func (w *goroutineWriter) stop() {
	w.log.close()
	for _, c := range w.conns {
		c.Close()
	}
	w.running.Wait()
}
