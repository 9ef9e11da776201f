package proxytest

import (
	"cmp"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// Stream is one open watch.
type Stream struct {
	Kind       Kind
	Query      url.Values
	s          *Server
	collection *Collection
	namespace  string
	number     int // counts up
	tables     bool
	protobuf   bool

	// Guarded by s.mu.
	from       uint64
	queue      []string
	waiting    []string // behind Hold
	held       bool
	end, abort bool
	wakec      chan struct{} // one token; never closed

	columns string // for the next line, of a stream in Tables; owned by run
}

// pushLocked lets the stream send what happened in its collection.
func (st *Stream) pushLocked(line string) {
	if st.held {
		st.waiting = append(st.waiting, line)
		return
	}
	st.queue = append(st.queue, line)
	st.wakeLocked()
}

func (st *Stream) wakeLocked() {
	select {
	case st.wakec <- struct{}{}:
	default:
	}
}

func (st *Stream) do(f func()) {
	st.s.mu.Lock()
	defer st.s.mu.Unlock()
	f()
	st.wakeLocked()
}

// Send sends raw bytes, whether the stream is held or not.
func (st *Stream) Send(raw string) { st.do(func() { st.queue = append(st.queue, raw) }) }

// End ends the stream properly, behind everything that it still has to send.
func (st *Stream) End() { st.do(func() { st.end = true }) }

// Abort breaks the connection at once.
func (st *Stream) Abort() { st.do(func() { st.abort = true }) }

// Hold keeps new events back, as a slow network does, until Release.
func (st *Stream) Hold() { st.do(func() { st.held = true }) }

// Release sends what was held back.
func (st *Stream) Release() {
	st.do(func() { st.queue, st.waiting, st.held = append(st.queue, st.waiting...), nil, false })
}

// watch serves a watch of the collection, in one namespace or in all.
func (c *Collection) watch(call *Call, namespace string) {
	s, q := c.s, call.Query
	initial := q.Get("sendInitialEvents") == "true"
	bookmarks := q.Get("allowWatchBookmarks") == "true" || q.Get("allowWatchBookmarks") == "1"
	from, _ := strconv.ParseUint(q.Get("resourceVersion"), 10, 64)
	seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))

	s.mu.Lock()
	if q.Has("sendInitialEvents") && !s.watchList {
		s.mu.Unlock()
		call.Fail(http.StatusUnprocessableEntity, "Invalid",
			"sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled", 0)
		return
	}
	if !q.Has("sendInitialEvents") && from == 0 {
		initial = true
	}
	st := &Stream{Kind: call.Kind, Query: q, s: s, collection: c, namespace: namespace, from: from,
		wakec: make(chan struct{}, 1), number: len(s.requests), tables: wantsTables(call.R.Header.Get("Accept")), columns: s.columns,
		protobuf: c.protobufs(call)}
	st.beginLocked(initial, bookmarks)
	if bookmarks && seconds > 0 && seconds < 60 && s.bookmarkAfter >= 0 && c.Resource != Events {
		//testlint:allow timer the time at which kube-apiserver sends a bookmark
		defer time.AfterFunc(s.bookmarkAfter, func() {
			st.do(func() {
				if s.rv > st.from {
					st.queue = append(st.queue, st.bookmark(false))
				}
			})
		}).Stop()
	}
	s.streams[st] = struct{}{}
	delay := s.delay
	s.notifyLocked()
	s.mu.Unlock()

	defer func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.streams, st)
		s.notifyLocked()
	}()
	st.run(call, time.Duration(cmp.Or(seconds, 3600))*time.Second, delay)
}

// beginLocked queues what a watch begins with: the state if initial is true, or the history from its
// resourceVersion on.
func (st *Stream) beginLocked(initial, bookmarks bool) {
	c, s := st.collection, st.s
	switch {
	case initial:
		if st.Query.Get("fieldSelector") == "" {
			for _, o := range sorted(c.objects, st.namespace) {
				st.queue = append(st.queue, st.line(change{"ADDED", o}))
			}
		}
		if bookmarks && s.watchList {
			st.queue = append(st.queue, st.bookmark(true))
		}
		st.from = s.rv
	case st.from == 0:
		st.from = s.rv
	case st.from < c.floor:
		st.queue = append(st.queue, st.expired())
		st.end = true
	default:
		for _, ch := range c.history {
			if ch.rv > st.from && (st.namespace == "" || ch.namespace == st.namespace) {
				st.queue = append(st.queue, st.line(ch))
			}
		}
	}
}

func (st *Stream) run(call *Call, timeout time.Duration, delay func(Kind) time.Duration) {
	call.W.Header().Set("Content-Type", "application/json")
	if st.protobuf {
		call.W.Header().Set("Content-Type", ProtobufType+";stream=watch")
	}
	call.W.WriteHeader(http.StatusOK)
	flusher := call.W.(http.Flusher)
	flusher.Flush()
	expired := time.After(timeout) //testlint:allow timer the timeout of which a client asked
	for {
		st.s.mu.Lock()
		line, end := "", false
		switch {
		case st.abort:
			st.s.mu.Unlock()
			panic(http.ErrAbortHandler)
		case len(st.queue) > 0:
			line, st.queue = st.queue[0], st.queue[1:]
		default:
			end = st.end
		}
		st.s.mu.Unlock()
		if end {
			return
		}
		if line != "" {
			if delay != nil {
				time.Sleep(delay(st.Kind)) //testlint:allow timer the fault that a test asks for
			}
			if _, err := io.WriteString(call.W, st.rendered(line)); err != nil {
				return
			}
			flusher.Flush()
			continue
		}
		select {
		case <-st.wakec:
		case <-expired:
			return
		case <-call.R.Context().Done():
			return
		}
	}
}
