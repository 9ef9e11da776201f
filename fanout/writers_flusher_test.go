//go:build linux

package fanout_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// flusherWriter is this package: a cache that keeps no history, of one object.
type flusherWriter struct {
	cache   *fanout.Cache
	flusher *fanout.Flusher
	filter  *fanout.Filter
	cancel  context.CancelFunc
	running sync.WaitGroup
	all     []*writerClient
}

func newFlusherWriter(shards int) (*flusherWriter, error) {
	filter, ok := fanout.NewFilter("", labels.Everything(), fields.Everything(), fieldLabels)
	if !ok {
		return nil, errors.New("no filter")
	}
	limits := roomy
	limits.HistoryEvents = 1
	w := &flusherWriter{flusher: fanout.NewFlusher(shards, 0), filter: filter}
	w.cache = fanout.NewCache(limits, w.flusher)
	pod := newPods(1).event("ADDED", 0, firstVersion)
	if _, err := w.cache.Replace([]*framing.Object{pod.Object}, firstVersion, time.Now()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(context.Background())
	w.cancel = cancel
	w.running.Go(func() { w.flusher.Run(ctx) })
	return w, nil
}

func (w *flusherWriter) clients() []*writerClient { return w.all }

func (w *flusherWriter) accept(l *net.TCPListener) error {
	conn, err := l.AcceptTCP()
	if err != nil {
		return err
	}
	raw, err := conn.SyscallConn()
	if err != nil {
		return err
	}
	sub, err := w.cache.Subscribe(fanout.Request{Filter: w.filter, Start: fanout.FromNow, Timeout: time.Hour})
	if err != nil {
		return err
	}
	s := &socketSink{conn: conn, raw: raw}
	s.try = func(fd uintptr) { s.rest, s.err = writev(int(fd), s.rest) }
	w.all = append(w.all, &s.writerClient)
	w.flusher.Start(sub, s)
	return nil
}

func (w *flusherWriter) append(ev framing.Event) error { return w.cache.Apply(ev, time.Now()) }

func (w *flusherWriter) stop() {
	w.cancel()
	w.running.Wait()
}

// socketSink is the least that a [fanout.Sink] over a socket needs: what the proxy's does in plaintext, but that a goroutine waits for a
// socket that is full, and nobody for a client to leave.
type socketSink struct {
	writerClient
	conn *net.TCPConn
	raw  syscall.RawConn
	try  func(fd uintptr)

	rest   [][]byte // not yet written
	events int      // that rest is of
	err    error
}

func (s *socketSink) Write(batch [][]byte) (blocked bool, err error) {
	s.rest = batch
	if err := s.raw.Control(s.try); err != nil {
		return false, err
	}
	s.events = len(s.rest)
	s.wrote(len(batch) - s.events)
	s.rest = append([][]byte(nil), s.rest...)
	return s.events > 0, s.err
}

func (s *socketSink) Drain(done func(error)) { go func() { done(s.drain()) }() }

func (s *socketSink) drain() error {
	err := s.raw.Write(func(fd uintptr) bool {
		s.rest, s.err = writev(int(fd), s.rest)
		return s.err != nil || len(s.rest) == 0
	})
	if err != nil {
		return err
	}
	s.wrote(s.events)
	return s.err
}

func (s *socketSink) End(fanout.Reason, bool) { s.conn.Close() }
