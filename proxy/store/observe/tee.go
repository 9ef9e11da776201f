package observe

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"
)

// tee holds the part of an answer that its observer has not taken yet. The client's goroutine writes
// and never waits. A tee that would hold too much is over, and holds nothing from then on. The observer
// is woken for much only: to wake it for each event would cost more than to compare it.
type tee struct {
	held    *held
	arrived chan struct{} // gets a value when there is much to take, or the answer ends; capacity 1

	mu    sync.Mutex
	bytes []byte // not taken
	marks []mark // of bytes
	ended bool
	whole bool // the answer has ended properly
	err   error
}

// mark says when the bytes up to end had come.
type mark struct {
	end int
	at  time.Time
}

// mostTee is how many bytes a tee holds, and muchTee how many it wakes the observer for.
const (
	mostTee = 1 << 20
	muchTee = 32 << 10
)

var (
	errBehind = errors.New("the observer can't keep up")
	errMemory = errors.New("observations hold too much")
	errBroken = errors.New("the answer was broken off")
)

func newTee(h *held) *tee { return &tee{held: h, arrived: make(chan struct{}, 1)} }

// wake makes the observer look.
func (t *tee) wake() {
	select {
	case t.arrived <- struct{}{}:
	default:
	}
}

// write adds bytes of the answer.
func (t *tee) write(p []byte) {
	now := time.Now()
	t.mu.Lock()
	defer t.mu.Unlock()
	switch {
	case t.err != nil:
	case len(t.bytes)+len(p) > mostTee:
		t.failLocked(errBehind)
	case !t.held.take(len(p)):
		t.failLocked(errMemory)
	default:
		if t.bytes == nil {
			t.bytes = make([]byte, 0, max(muchTee, len(p)))
		}
		t.bytes = append(t.bytes, p...)
		t.marks = append(t.marks, mark{len(t.bytes), now})
		if len(t.bytes) >= muchTee {
			t.wake()
		}
	}
}

// end says that the answer has ended.
func (t *tee) end(whole bool) {
	t.mu.Lock()
	t.ended, t.whole = true, whole
	t.mu.Unlock()
	t.wake()
}

// fail drops what the tee holds, and makes it hold nothing from now on.
func (t *tee) fail(err error) {
	t.mu.Lock()
	t.failLocked(err)
	t.mu.Unlock()
}

func (t *tee) failLocked(err error) {
	t.held.give(len(t.bytes))
	t.bytes, t.marks, t.err = nil, nil, err
	t.wake()
}

// take returns what has come since the last call, and when. ended is true once nothing follows. err is why the
// rest is missing.
func (t *tee) take() (bytes []byte, marks []mark, ended bool, err error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	bytes, marks = t.bytes, t.marks
	t.bytes, t.marks = nil, nil
	t.held.give(len(bytes))
	return bytes, marks, t.ended, t.err
}

// body is the answer as a reader that waits. It returns errBroken at the end of one that has not ended
// properly.
type body struct {
	*tee
	ctx    context.Context
	rest   []byte        // of what was last taken
	waited time.Duration // for kube-apiserver, in all
	wakes  bool          // it looks for a little too, once a second
}

func (b *body) Read(p []byte) (int, error) {
	for len(b.rest) == 0 {
		rest, _, ended, err := b.take()
		switch {
		case err != nil:
			return 0, err
		case len(rest) > 0:
			b.rest = rest
			continue
		case ended && b.whole:
			return 0, io.EOF
		case ended:
			return 0, errBroken
		}
		began := time.Now()
		var tick <-chan time.Time
		if b.wakes {
			tick = time.After(tickEvery)
		}
		select {
		case <-b.arrived:
		case <-tick:
		case <-b.ctx.Done():
			return 0, b.ctx.Err()
		}
		b.waited += time.Since(began)
	}
	n := copy(p, b.rest)
	b.rest = b.rest[n:]
	return n, nil
}
