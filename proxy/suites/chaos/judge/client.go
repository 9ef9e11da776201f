package main

import (
	"cmp"
	"maps"
	"slices"
	"strconv"
	"time"

	"go.etcd.io/etcd/tests/v3/robustness/model"
)

// client is what one client saw of one world.
type client struct {
	world *world
	name  string

	watches []model.WatchOperation
	reads   []read
	ghosts  []read           // of what the client held while unsure
	view    map[string]shown // what an informer would hold; nil: unknown
	ahead   int64            // the view is not older than this
	unsure  bool             // a list's differences broke off: the view may hold what is gone
	begun   bool             // the view comes from a list, and no stream has followed yet
	stream  *stream          // the one that is open, if any

	counts
}

// counts is how much was judged.
type counts struct {
	streams, resumed, events, bookmarks, lists, gets, initial, views, relists, torn, skipped int
}

// read is a range of keys as of a revision.
type read struct {
	what       string
	at, until  int64 // when it was asked and answered; 0 if that does not matter
	scope      scope
	rv         int64 // of the state; 0 for a get, whose answer does not say it
	consistent bool  // it may not be older than the question
	objects    []shown
}

// stream is an open watch.
type stream struct {
	asked    line
	initial  []shown               // so far
	started  bool                  // the initial events are over
	watch    *model.WatchOperation // nil: before the initial events' end, or among a list's differences
	relisted bool                  // among a list's differences,
	list     int64                 // of which this was the last list
	last     int64                 // resourceVersion of the last event
}

// take takes the next line of the client.
func (c *client) take(l line) {
	switch l.Kind {
	case "read":
		c.read(l)
	case "watch":
		c.begin(l)
	case "event":
		c.event(l)
	case "end":
		c.end()
	}
}

func (c *client) read(l line) {
	r := read{what: "list", at: l.At, until: l.Until, scope: *l.Scope, rv: l.RV, consistent: l.Asked == "",
		objects: l.Objects}
	if l.Scope.Name != "" {
		r.what = "get"
		c.gets++
		if !r.consistent && len(l.Objects) == 0 {
			c.skipped++ // any object was absent once
			return
		}
	} else {
		c.lists++
		c.know(l.RV, l.Objects)
	}
	if l.Match == "Exact" {
		r.what, r.rv = "exact list", number(l.Asked)
	}
	c.reads = append(c.reads, r)
}

// number is a resourceVersion that a client asked for.
func number(rv string) int64 {
	n, err := strconv.ParseInt(rv, 10, 64)
	if err != nil {
		return 0 // no revision
	}
	return n
}

// know says that the client holds these objects.
func (c *client) know(rv int64, objects []shown) {
	c.view, c.ahead, c.unsure, c.begun = make(map[string]shown, len(objects)), rv, false, true
	for _, o := range objects {
		c.view[o.Key] = o
	}
}

func (c *client) begin(l line) {
	c.streams++
	c.stream = &stream{asked: l, started: !l.Initial}
	if !l.Initial {
		rv := number(l.Asked)
		c.open(rv)
		c.stream.last = rv
		if !c.begun {
			c.resumed++
		}
		c.begun = false
	}
}

// open begins a watch of etcd behind rv.
func (c *client) open(rv int64) {
	c.stream.watch = &model.WatchOperation{Request: model.WatchRequest{Key: c.stream.asked.Scope.prefix(),
		Revision: rv + 1, WithPrefix: true, WithProgressNotify: true, WithPrevKV: true}}
}

// shut ends the watch of etcd.
func (c *client) shut() {
	if w := c.stream.watch; w != nil {
		c.watches = append(c.watches, *w)
		c.stream.watch = nil
	}
}

func (c *client) event(l line) {
	s := c.stream
	switch {
	case l.Type == "ERROR":
		if s.watch != nil {
			s.watch.Responses = append(s.watch.Responses, model.WatchResponse{Error: l.Error, Time: time.Duration(l.At)})
		}
	case !s.started:
		c.initialEvent(l)
	case l.Relist != 0:
		c.difference(l)
	case s.watch == nil: // a difference that no list explains
		s.relisted = false
		c.open(s.last)
		fallthrough
	default:
		c.response(l)
	}
}

// initialEvent takes an event before the bookmark that ends the initial ones. Together they are a
// list.
func (c *client) initialEvent(l line) {
	s := c.stream
	switch {
	case l.Type == "BOOKMARK" && l.Initial:
		c.initial++
		c.reads = append(c.reads, read{what: "initial events", at: s.asked.At, until: l.At, scope: *s.asked.Scope,
			rv: l.RV, consistent: s.asked.Asked == "", objects: s.initial})
		c.know(l.RV, s.initial)
		s.started, s.last, c.begun = true, l.RV, false
		c.open(l.RV)
	case l.Type == "ADDED":
		s.initial = append(s.initial, shown{l.Key, l.RV, l.Value})
	default: // no list has this
		s.initial = append(s.initial, shown{l.Key, l.RV, l.Type + " " + l.Value})
	}
}

// response takes an event or a bookmark of a watch.
func (c *client) response(l line) {
	r := model.WatchResponse{Revision: l.RV, Time: time.Duration(l.At)}
	if l.Type == "BOOKMARK" {
		c.bookmarks++
		r.IsProgressNotify = true
	} else {
		c.events++
		r.Events = []model.WatchEvent{c.watchEvent(l)}
		c.apply(l)
	}
	c.stream.watch.Responses = append(c.stream.watch.Responses, r)
	c.stream.last = l.RV
}

// watchEvent is an event as etcd would send it. A deleted object has the content that it had
// before, which the client was shown. The revision of that content comes from the history: a client
// is shown the deletion's.
func (c *client) watchEvent(l line) model.WatchEvent {
	var e model.WatchEvent
	e.Type, e.Key, e.Revision = model.PutOperation, "/"+c.world.resource+"/"+l.Key, l.RV
	if l.Type == "DELETED" {
		e.Type = model.DeleteOperation
		old := c.world.version(e.Key, l.RV-1)
		e.PrevValue = &model.ValueRevision{Value: model.ValueOrHash{Value: l.Value}, ModRevision: old.rv, Version: old.number}
		return e
	}
	e.Value, e.IsCreate = model.ValueOrHash{Value: l.Value}, l.Type == "ADDED"
	return e
}

// difference takes an event that a list explains. The watch ends before the first of them, and
// another begins behind the list. The form has no word for the differences themselves. What counts
// is what the client holds in the end: that must be the state as of the list.
func (c *client) difference(l line) {
	s := c.stream
	if !s.relisted {
		c.shut()
		c.relists++
		s.relisted = true
	}
	s.last, s.list = l.RV, l.Relist
	behind := l.Type == "BOOKMARK" || l.RV > l.Relist
	if !behind {
		c.apply(l)
	}
	if l.More {
		return
	}
	s.relisted = false
	c.ahead = max(c.ahead, l.Relist)
	c.unseen(l.Relist)
	c.see("objects held behind a relist", l.Relist)
	c.open(l.Relist)
	if behind { // the list has shown every change undone
		c.response(l)
	}
}

// unseen gives the objects in the client's view, of which it sees the same in a list as of rv, the versions of that
// list. In the quiet view a list is not told of what has changed to and fro since the list before.
func (c *client) unseen(rv int64) {
	if !c.world.quiet {
		return
	}
	for key, o := range c.view {
		if v := c.world.version("/"+c.world.resource+"/"+key, rv); v.value == o.Value {
			c.view[key] = shown{key, v.rv, o.Value}
		}
	}
}

// apply changes the view.
func (c *client) apply(l line) {
	if c.view == nil {
		return
	}
	if l.Type == "DELETED" {
		delete(c.view, l.Key)
	} else {
		c.view[l.Key] = shown{l.Key, l.RV, l.Value}
	}
}

// see judges the view as of rv.
func (c *client) see(what string, rv int64) {
	if c.view == nil || rv < c.ahead {
		return
	}
	held := read{what: what, scope: *c.stream.asked.Scope, rv: rv,
		objects: slices.SortedFunc(maps.Values(c.view), func(a, b shown) int { return cmp.Compare(a.Key, b.Key) })}
	if c.unsure {
		c.torn++
		c.ghosts = append(c.ghosts, held)
		return
	}
	c.views++
	c.reads = append(c.reads, held)
}

func (c *client) end() {
	s := c.stream
	if s == nil {
		return
	}
	if s.relisted {
		c.unsure, c.ahead = true, max(c.ahead, s.list)
	} else if s.started {
		c.see("objects held at the end of a stream", s.last)
	}
	c.shut()
	c.stream = nil
}

// request is the read as a request to etcd as of a revision, 0 for the newest.
func (r read) request(rv int64) model.EtcdRequest {
	options := model.RangeOptions{Start: r.scope.prefix()}
	if r.scope.Name == "" {
		options.End = options.Start[:len(options.Start)-1] + "0" // the byte behind the slash
	}
	return model.EtcdRequest{Type: model.Range, Range: &model.RangeRequest{RangeOptions: options, Revision: rv}}
}

// answer is what the client was shown, as etcd's answer at a revision.
func (r read) answer(w *world, rv int64) model.MaybeEtcdResponse {
	kvs := make([]model.KeyValue, len(r.objects))
	for i, o := range r.objects {
		kvs[i] = w.stored(o)
	}
	return model.MaybeEtcdResponse{EtcdResponse: model.EtcdResponse{
		Range: &model.RangeResponse{KVs: kvs, Count: int64(len(kvs))}, Revision: rv}}
}

// revision is the revision that the read is of. The answer to a get does not say it. It is the
// first that is not too old for the answer, if there is one at which the object is as the client
// was shown it, and else an older one.
func (r read) revision(h *history, w *world) int64 {
	if r.scope.Name == "" {
		return r.rv
	}
	key, known := r.scope.prefix(), h.known(r.at)
	switch {
	case len(r.objects) == 0:
		return w.absence(key, known)
	case r.consistent && w.version(key, known).rv == r.objects[0].RV:
		return known
	}
	return r.objects[0].RV
}
