package proxy_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/url"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// way is how a client speaks with a server.
type way struct {
	protobuf, gzip bool
	protocol       string
}

const (
	overHTTP1     = "HTTP/1.1"
	overHTTP2     = "HTTP/2"
	overWebSocket = "WebSocket"
)

// ways are all of them. WebSockets are not compressed.
func ways() (all []way) {
	for _, protobuf := range []bool{false, true} {
		all = append(all, way{protobuf, false, overWebSocket})
		for _, gzip := range []bool{false, true} {
			all = append(all, way{protobuf, gzip, overHTTP1}, way{protobuf, gzip, overHTTP2})
		}
	}
	return all
}

// header returns the header of a request. A list does not come over a WebSocket.
func (w way) header(watch bool) http.Header {
	h := http.Header{"Accept": {"application/json"}, "User-Agent": {proxytest.ClientAgent}}
	if w.protobuf {
		h.Set("Accept", proxytest.ProtobufType)
	}
	if w.gzip {
		h.Set("Accept-Encoding", "gzip")
	}
	if watch && w.protocol == overWebSocket {
		proxytest.AskForWebSocket(&http.Request{Header: h, URL: &url.URL{Scheme: "http", Host: "localhost"}})
	}
	return h
}

// body returns the body of an answer as it is over HTTP without compression.
func (w way) body(resp *http.Response) io.ReadCloser {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return proxytest.NewMessageReader(resp.Body, w.protobuf)
	}
	return proxytest.Uncompressed(resp)
}

// decode returns what is encoded as JSON has it.
func (w way) decode(b []byte) (o tree, err error) {
	if !w.protobuf {
		return o, json.Unmarshal(b, &o)
	}
	typed, err := proxytest.DecodeProtobuf(b)
	if err != nil {
		return nil, err
	}
	return decoded(typed), nil
}

// event decodes an event.
func (w way) event(b []byte) (typ string, o tree, err error) {
	if !w.protobuf {
		var e struct {
			Type   string
			Object tree
		}
		return e.Type, e.Object, json.Unmarshal(b, &e)
	}
	var e metav1.WatchEvent
	if err = e.Unmarshal(b); err == nil {
		o, err = w.decode(e.Object.Raw)
	}
	return e.Type, o, err
}

// viewClient is an informer in a view.
type viewClient struct {
	way
	w         *viewWorld
	number    int
	kind      *viewedKind
	view      *viewModel
	namespace string
	labels    labels.Selector
	fields    fields.Selector
	target    string     // of its lists; more of the query may follow
	rng       *rand.Rand // the goroutine's of run

	mu      sync.Mutex // guards the rest; taken before the world's
	known   map[string]held
	rv      uint64 // of the last that came; 0 if the state has to come first
	newest  uint64 // of what it has known
	removed bool   // a removal that no event of its resourceVersion explains has come since the last bookmark
	torn    bool   // its watch has ended behind such a removal: others may be lost, and a server without the gap repeats it
	leave   func() // ends its watch
	left    bool
	forgets bool // it begins anew
}

// held is an object that a client holds: form without what is empty, and all that it was sent.
type held struct {
	rv        uint64
	form, all tree
}

func (c *viewClient) String() string {
	return fmt.Sprintf("client %d, %v: %s, view %+v", c.number, c.way, c.target, c.view.Config)
}

// selects reports whether the client's view and selectors have a whole object. The world is locked.
func (c *viewClient) selects(o tree) bool {
	set := fields.Set{}
	for _, path := range []string{"metadata.name", "metadata.namespace", "spec.nodeName", "status.phase"} {
		text, _ := valueAt(o, path).(string)
		set[path] = text
	}
	return (c.namespace == "" || c.namespace == set["metadata.namespace"]) && c.labels.Matches(labelsOf(o)) && c.fields.Matches(set) &&
		c.view.has(o, c.kind.Name, c.w.spaces)
}

// has is selects, and locks the world.
func (c *viewClient) has(o tree) bool {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	return c.selects(o)
}

// form returns what the client's view shows of a whole object.
func (c *viewClient) form(o tree) tree { return c.view.form(o, c.kind.Name) }

// wrong fails the test.
func (c *viewClient) wrong(format string, args ...any) {
	if c.w.wrongs.Add(1) <= 3 {
		c.w.t.Errorf("%s\n%v", fmt.Sprintf(format, args...), c)
	}
}

// run lists, watches and resumes until ctx ends. Now and then the client is away for a while.
func (c *viewClient) run(ctx context.Context) {
	away := func() time.Duration { return time.Duration(1+c.rng.IntN(4)/3*c.rng.IntN(200)) * c.w.pause / 100 }
	for proxytest.Sleep(ctx, away()) { //testlint:allow timer a pace, which nothing asserts
		at := c.w.replicas[c.rng.IntN(len(c.w.replicas))].front()
		if at == nil {
			continue
		}
		c.mu.Lock()
		if c.forgets {
			c.rv, c.forgets = 0, false
		}
		rv := c.rv
		c.mu.Unlock()
		if rv == 0 {
			c.begin(ctx, at)
			continue
		}
		c.w.count("resumes")
		c.watch(ctx, at, &stream{from: fmt.Sprintf("resourceVersion=%d", rv)})
	}
}

// stream is a watch.
type stream struct {
	from    string // of its query
	initial map[string]held
	least   uint64 // the resourceVersion that its state must have at least
	sure    bool   // see differs
}

// consistent reports whether a query asks for a state as new as the request.
func consistent(query string) bool { return !strings.Contains(query, "resourceVersion=") }

// begin lists, or begins a watch with the state.
func (c *viewClient) begin(ctx context.Context, at front) {
	written := c.w.written(c.kind)
	known := fmt.Sprintf("resourceVersion=%d", c.newest)
	switch c.rng.IntN(7) {
	case 0, 1:
		c.list(at, "", written)
	case 2:
		c.list(at, "resourceVersion=0", 0)
	case 3:
		c.list(at, "limit=3", written)
	case 4:
		c.list(at, known+"&resourceVersionMatch=NotOlderThan", c.newest)
	case 5:
		c.watch(ctx, at, &stream{from: "sendInitialEvents=true&resourceVersionMatch=NotOlderThan", initial: map[string]held{}, least: written})
	case 6:
		c.watch(ctx, at, &stream{from: oneOf(c.rng, "resourceVersion=0", known+"&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"),
			initial: map[string]held{}})
	}
}

// list lists, in pages if the server says so. It reports whether the server has answered.
func (c *viewClient) list(at front, query string, least uint64) (ok bool) {
	relabelled, sure := c.w.relabelled(), consistent(query)
	objects, rv := make(map[string]held), uint64(0)
	for {
		list, ok := c.get(at, c.target+query)
		if !ok {
			return false
		}
		meta := list["metadata"].(tree)
		was := rv
		if rv = versionOf(list); was != 0 && rv != was {
			c.wrong("a page of %d behind one of %d", rv, was)
		}
		items, _ := list["items"].([]any)
		for _, item := range items {
			key, o := heldOf(item.(tree))
			objects[key] = o
		}
		if len(objects) > 0 {
			c.w.count("lists")
		}
		token, _ := meta["continue"].(string)
		if token == "" {
			break
		}
		c.w.count("pages")
		query = "limit=3&continue=" + url.QueryEscape(token)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.adopt(rv, objects, least, sure && relabelled == c.w.relabelled())
	return true
}

// get returns the answer to a GET, if it is 200.
func (c *viewClient) get(at front, target string) (o tree, ok bool) {
	resp, leave, err := at.ask(target, c.way, false)
	if err != nil {
		return nil, false
	}
	defer leave()
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		c.refused(resp.StatusCode)
		return nil, false
	}
	body, err := io.ReadAll(c.body(resp))
	if err == nil {
		o, err = c.decode(body)
	}
	if err != nil && at.up() {
		c.wrong("%s: %v: %.200q", target, err, body)
	}
	if resp.Header.Get("Content-Encoding") == "gzip" {
		c.w.count("compressed lists")
	}
	return o, err == nil
}

// refused is an answer other than 200. A client that is too late lists; one that is asked to wait does so now
// and then.
func (c *viewClient) refused(code int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case code == http.StatusGone:
		c.w.count("410")
	case code == http.StatusTooManyRequests, code == http.StatusServiceUnavailable:
		c.w.count("429")
		if c.rng.IntN(4) > 0 {
			return
		}
	default:
		c.wrong("refused with %d", code)
	}
	c.rv = 0
}

// adopt makes a state what the client holds.
func (c *viewClient) adopt(rv uint64, objects map[string]held, least uint64, sure bool) {
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if rv < least {
		c.wrong("got the state as of %d, and asked for one as of %d at least", rv, least)
	}
	if err := c.differs(rv, objects, true, sure); err != nil {
		c.wrong("the state as of %d: %v", rv, err)
	}
	c.known, c.rv, c.newest, c.removed, c.torn = objects, rv, rv, false, false
}

// differs compares objects with the view as of a resourceVersion. listed says that each is of its latest version
// then, as they are in a list, and where no quiet view spared the client the event. sure says that the labels of
// the namespaces count that there are now. The world is locked.
func (c *viewClient) differs(rv uint64, objects map[string]held, listed, sure bool) error {
	if c.view.byNamespaceLabels(c.kind.Name) && !sure {
		return nil
	}
	var wrong []error
	n := 0
	for key, v := range c.kind.state(rv) {
		if !c.selects(v.object) {
			continue
		}
		n++
		switch o, ok := objects[key]; {
		case !ok:
			wrong = append(wrong, fmt.Errorf("%s is missing", key))
		case (listed || !c.view.Quiet) && o.rv != v.rv, o.rv > v.rv:
			wrong = append(wrong, fmt.Errorf("%s is of %d, and the latest of %d", key, o.rv, v.rv))
		case !reflect.DeepEqual(o.form, c.form(v.object)):
			wrong = append(wrong, fmt.Errorf("%s is %v, and the view has %v", key, o.form, c.form(v.object)))
		}
	}
	if len(wrong) == 0 && n != len(objects) {
		wrong = append(wrong, fmt.Errorf("there are %d objects and not %d: %v", len(objects), n, objects))
	}
	return errors.Join(wrong...)
}

// watch watches until the stream ends.
func (c *viewClient) watch(ctx context.Context, at front, s *stream) {
	relabelled := c.w.relabelled()
	resp, leave, err := at.ask(c.target+"watch=1&allowWatchBookmarks=true&"+s.from, c.way, true)
	if err != nil {
		return
	}
	c.mu.Lock()
	c.leave, c.left = leave, false
	c.mu.Unlock()
	defer leave()
	defer context.AfterFunc(ctx, func() { c.cut(false) })()
	if resp.StatusCode != http.StatusOK && resp.StatusCode != http.StatusSwitchingProtocols {
		_ = resp.Body.Close()
		c.refused(resp.StatusCode)
		return
	}
	c.w.count(fmt.Sprint(c.way))
	body := c.body(resp)
	defer body.Close()
	for in := proxytest.NewEventReader(body, c.protobuf); ; {
		b, err := in.Next()
		if err != nil {
			c.ended(err, at)
			return
		}
		typ, o, err := c.event(b)
		if err != nil {
			c.wrong("%v: %.200q", err, b)
			return
		}
		s.sure = consistent(s.from) && relabelled == c.w.relabelled()
		if !c.take(s, typ, o) {
			return
		}
	}
}

// ended is the end of a watch.
func (c *viewClient) ended(err error, at front) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.torn = c.torn || c.removed
	if err != io.EOF && !c.left && at.up() {
		c.wrong("the watch ended with %v", err)
	}
}

// cut makes the client leave its watch, and forget what it knows.
func (c *viewClient) cut(forget bool) {
	c.mu.Lock()
	leave := c.leave
	c.left = true
	c.forgets = c.forgets || forget
	c.mu.Unlock()
	if leave != nil {
		leave()
	}
}

// take takes an event. It reports whether others follow.
func (c *viewClient) take(s *stream, typ string, o tree) (more bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.w.count(typ)
	rv := versionOf(o)
	switch {
	case typ == "ERROR":
		if code, _ := o["code"].(float64); code != http.StatusGone {
			c.wrong("got %v", o)
		}
		c.w.count("410")
		c.rv = 0
		return false
	case o["kind"] != c.kind.Kind || o["apiVersion"] != "v1" || rv == 0:
		c.wrong("got %s %v", typ, o)
	case typ == "BOOKMARK":
		c.bookmark(s, o, rv)
	case s.initial != nil:
		key, object := heldOf(o)
		if _, twice := s.initial[key]; twice || typ != "ADDED" {
			c.wrong("%s of %s among the initial events", typ, key)
		}
		s.initial[key] = object
	default:
		c.change(typ, o, rv)
	}
	return true
}

// bookmark takes a bookmark: the client holds the state as of it.
func (c *viewClient) bookmark(s *stream, o tree, rv uint64) {
	end := valueAt(o, "metadata.annotations['"+metav1.InitialEventsAnnotationKey+"']") == "true"
	switch {
	case end != (s.initial != nil):
		c.wrong("got the bookmark %v", o)
	case end:
		c.adopt(rv, s.initial, s.least, s.sure)
		s.initial = nil
		return
	case rv < c.rv:
		c.wrong("a bookmark of %d behind %d", rv, c.rv)
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	if err := c.differs(rv, c.known, false, false); err != nil {
		c.wrong("at the bookmark of %d: %v", rv, err)
	}
	c.rv, c.newest, c.removed, c.torn = rv, rv, false, false
}

// change takes a change of an object.
func (c *viewClient) change(typ string, o tree, rv uint64) {
	key, now := heldOf(o)
	was, had := c.known[key]
	v := c.w.version(c.kind, key, rv)
	switch {
	case rv < c.rv || typ != "DELETED" && rv == c.rv:
		c.wrong("%s %s of %d behind %d", typ, key, rv, c.rv)
	case typ != "DELETED" && (v == nil || !reflect.DeepEqual(now.form, c.form(v.object))):
		c.wrong("%s of %s of %d: got %v, and kube-apiserver has %v", typ, key, rv, now.form, v)
	case had && typ != "DELETED" && rv <= was.rv:
		c.wrong("%s of %d, and had %s of %d", typ, rv, key, was.rv)
	case (typ == "ADDED") == had && !c.torn:
		c.wrong("%s of %s of %d, and had it: %v", typ, key, rv, had)
	case typ == "DELETED" && had && !c.torn && !reflect.DeepEqual(now.form, was.form):
		c.wrong("DELETED %s of %d: %v, and had %v", key, rv, now.form, was.form)
	case typ == "MODIFIED" && c.view.Quiet && had && reflect.DeepEqual(now.all, was.all):
		c.wrong("MODIFIED %s of %d shows nothing new: %v", key, rv, now.form)
	}
	c.rv, c.newest = rv, rv
	if typ != "DELETED" {
		c.known[key] = now
		return
	}
	delete(c.known, key)
	if v == nil || v.object != nil && c.has(v.object) {
		c.removed = true
		c.w.count("removals")
	}
}

// settled returns why the client does not hold the state as of rv yet.
func (c *viewClient) settled(rv uint64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.rv == 0 || c.w.bookmarks && c.rv < rv {
		return fmt.Errorf("it is at %d of %d", c.rv, rv)
	}
	c.w.mu.Lock()
	defer c.w.mu.Unlock()
	return c.differs(rv, c.known, false, true)
}

// versionOf returns the resourceVersion of an object or a list; 0 for none.
func versionOf(o tree) uint64 {
	text, _ := valueAt(o, "metadata.resourceVersion").(string)
	rv, _ := strconv.ParseUint(text, 10, 64)
	return rv
}

// heldOf returns an object that has come.
func heldOf(o tree) (key string, h held) {
	all := withoutVersion(o)
	form, _ := withoutEmpty(all).(tree)
	return fmt.Sprintf("%v/%v", valueAt(o, "metadata.namespace"), valueAt(o, "metadata.name")), held{versionOf(o), form, all}
}
