package proxytest

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"
)

// Kind is the purpose of a request, as kube-apiserver sees it.
type Kind string

// The kinds. All but Client and Other are watchfan's own requests.
const (
	Form      Kind = "form"      // the empty list that tells how lists are written
	List      Kind = "list"      // a list, or a page of one
	WatchList Kind = "watchlist" // the reflector's initial events and what follows
	Watch     Kind = "watch"     // the reflector's watch from a resourceVersion
	Probe     Kind = "probe"     // a list of a namespace that can't exist, for the current resourceVersion
	Short     Kind = "short"     // a watch of a few seconds, for a bookmark or a replay
	Review    Kind = "review"    // a SelfSubjectAccessReview or SubjectAccessReview
	Client    Kind = "client"    // a client's request, passed through
	Other     Kind = "other"     // discovery, health
)

// ClientAgent is the User-Agent by which Server recognises a request that watchfan passed through.
const ClientAgent = "proxytest-client"

// Resource is one resource of a Server.
type Resource struct {
	Group, Version, Name, Kind string
}

// The resources of every Server: a built-in one, whose lists omit the kind and apiVersion of their
// items; a custom one, whose members are sorted; and events, which has no watch cache.
var (
	ConfigMaps = Resource{Version: "v1", Name: "configmaps", Kind: "ConfigMap"}
	Foos       = Resource{Group: "ex.io", Version: "v1", Name: "foos", Kind: "Foo"}
	Events     = Resource{Version: "v1", Name: "events", Kind: "Event"}

	// Definitions is the resource that says which resources are custom; see Server.Add.
	Definitions = Resource{Group: "apiextensions.k8s.io", Version: "v1", Name: "customresourcedefinitions", Kind: "CustomResourceDefinition"}
)

// Path returns the path of the whole collection.
func (r Resource) Path() string {
	if r.Group == "" {
		return "/api/" + r.Version + "/" + r.Name
	}
	return "/apis/" + r.Group + "/" + r.Version + "/" + r.Name
}

func (r Resource) apiVersion() string { return strings.TrimPrefix(r.Group+"/"+r.Version, "/") }

// Request is a request that the server has received.
type Request struct {
	Kind   Kind
	Method string
	Path   string
	Query  url.Values
	Token  string // the bearer token
	At     time.Time
}

// Server is a scripted kube-apiserver. Its methods may be called from any goroutine.
type Server struct {
	*httptest.Server
	t testing.TB

	mu            sync.Mutex
	rv, uids      uint64
	collections   map[string]*Collection // by path
	rules         []*rule
	requests      []Request
	streams       map[*Stream]struct{}
	opened        chan struct{} // closed and replaced when a stream opens or a request comes
	pages         map[string][]object
	watchList     bool
	bookmarkAfter time.Duration
	delay         func(Kind) time.Duration
	allow         func(token, review string) bool
}

type rule struct {
	kind Kind
	left int
	do   func(*Call)
}

// NewServer starts a server over HTTP/1.1, at resourceVersion 100, that ends with the test.
func NewServer(t testing.TB) *Server {
	s := newServer(t)
	s.Server = httptest.NewServer(http.HandlerFunc(s.serve))
	t.Cleanup(s.stop)
	return s
}

// NewTLSServer starts a server over HTTP/2.
func NewTLSServer(t testing.TB) *Server {
	s := newServer(t)
	s.Server = httptest.NewUnstartedServer(http.HandlerFunc(s.serve))
	s.Server.EnableHTTP2 = true
	s.Server.StartTLS()
	t.Cleanup(s.stop)
	return s
}

func newServer(t testing.TB) *Server {
	s := &Server{
		t:             t,
		rv:            100,
		collections:   make(map[string]*Collection),
		streams:       make(map[*Stream]struct{}),
		opened:        make(chan struct{}),
		pages:         make(map[string][]object),
		watchList:     true,
		bookmarkAfter: 50 * time.Millisecond,
		allow:         func(_, _ string) bool { return true },
	}
	for _, r := range []Resource{ConfigMaps, Foos, Events} {
		s.Add(r)
	}
	return s
}

// Add gives the server another resource, before the first request for it.
func (s *Server) Add(r Resource) *Collection {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := &Collection{s: s, Resource: r, objects: make(map[string]object)}
	s.collections[r.Path()] = c
	return c
}

func (s *Server) stop() {
	s.CloseClientConnections()
	s.Close()
}

// Collection returns the server's collection of a resource.
func (s *Server) Collection(r Resource) *Collection { return s.collections[r.Path()] }

// SetWatchList says whether the server knows sendInitialEvents.
func (s *Server) SetWatchList(on bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watchList = on
}

// SetBookmarkAfter sets when a watch of a few seconds gets its bookmark. A negative duration means
// never.
func (s *Server) SetBookmarkAfter(d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.bookmarkAfter = d
}

// SetDelay delays each line of each stream.
func (s *Server) SetDelay(f func(Kind) time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.delay = f
}

// SetAllow sets the answer to access reviews. At first everything is allowed.
func (s *Server) SetAllow(f func(token, review string) bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.allow = f
}

// On lets do answer the next times requests of a kind. Rules of one kind are used in order.
func (s *Server) On(kind Kind, times int, do func(*Call)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = append(s.rules, &rule{kind, times, do})
}

// Forget drops the rules that are left.
func (s *Server) Forget() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rules = nil
}

// RV returns the current resourceVersion.
func (s *Server) RV() uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.rv
}

// Bump adds n to the resourceVersion, as writes to other resources do, and returns it.
func (s *Server) Bump(n uint64) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.rv += n
	return s.rv
}

// Requests returns the requests of a kind so far.
func (s *Server) Requests(kind Kind) []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	var of []Request
	for _, r := range s.requests {
		if r.Kind == kind {
			of = append(of, r)
		}
	}
	return of
}

// Count returns the number of requests of a kind so far.
func (s *Server) Count(kind Kind) int { return len(s.Requests(kind)) }

// AwaitCount waits until there have been n requests of a kind.
func (s *Server) AwaitCount(kind Kind, n int) {
	s.t.Helper()
	s.await(fmt.Sprintf("%d requests of kind %s", n, kind), func() bool {
		have := 0
		for _, r := range s.requests {
			if r.Kind == kind {
				have++
			}
		}
		return have >= n
	})
}

// All returns all requests so far.
func (s *Server) All() []Request {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// Open returns the number of open streams of a kind.
func (s *Server) Open(kind Kind) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := 0
	for st := range s.streams {
		if st.Kind == kind {
			n++
		}
	}
	return n
}

// Stream waits for the newest open stream of one of the kinds and returns it.
func (s *Server) Stream(kinds ...Kind) *Stream {
	s.t.Helper()
	return s.stream(nil, kinds...)
}

// stream is Stream for one collection, or for any if c is nil.
func (s *Server) stream(c *Collection, kinds ...Kind) *Stream {
	s.t.Helper()
	var newest *Stream
	s.await(fmt.Sprintf("stream %v", kinds), func() bool {
		for st := range s.streams {
			if slices.Contains(kinds, st.Kind) && (c == nil || st.collection == c) && (newest == nil || st.number > newest.number) {
				newest = st
			}
		}
		return newest != nil
	})
	return newest
}

// Reflector waits for the stream by which watchfan follows a collection, and returns it.
func (s *Server) Reflector() *Stream {
	s.t.Helper()
	return s.Stream(WatchList, Watch)
}

// Patience is how long tests wait for anything. It only ends what hangs, because a machine that
// tests many packages at once is slow.
const Patience = time.Minute

func (s *Server) await(what string, have func() bool) {
	s.t.Helper()
	deadline := time.After(Patience)
	for {
		s.mu.Lock()
		ok, opened := have(), s.opened
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-opened:
		case <-deadline:
			s.t.Fatalf("upstream: no %s within %s", what, Patience)
		}
	}
}

func (s *Server) notifyLocked() {
	close(s.opened)
	s.opened = make(chan struct{})
}

func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	c := &Call{Kind: kindOf(r), Query: r.URL.Query(), W: w, R: r, s: s}
	s.mu.Lock()
	s.requests = append(s.requests, Request{c.Kind, r.Method, r.URL.Path, c.Query, bearerToken(r), time.Now()})
	s.notifyLocked()
	var do func(*Call)
	for _, rule := range s.rules {
		if rule.kind == c.Kind && rule.left > 0 {
			rule.left--
			do = rule.do
			break
		}
	}
	s.mu.Unlock()
	if do != nil {
		do(c)
		return
	}
	c.Serve()
}

func bearerToken(r *http.Request) string {
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

func kindOf(r *http.Request) Kind {
	q := r.URL.Query()
	watch := q.Get("watch") == "true" || q.Get("watch") == "1"
	seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))
	switch {
	case r.UserAgent() == ClientAgent:
		return Client
	case strings.HasSuffix(r.URL.Path, "subjectaccessreviews"):
		return Review
	case strings.Count(strings.TrimPrefix(r.URL.Path, "/apis"), "/") < 3:
		return Other
	case watch && q.Get("sendInitialEvents") == "true":
		return WatchList
	case watch && seconds < 60:
		return Short
	case watch:
		return Watch
	case q.Get("fieldSelector") != "":
		return Form
	case strings.Contains(r.URL.Path, "/namespaces/-/"):
		return Probe
	}
	return List
}

// Call is one request that a rule answers. It must not be used after the rule has returned.
type Call struct {
	Kind  Kind
	Query url.Values
	W     http.ResponseWriter
	R     *http.Request
	s     *Server
}

// Serve answers as without a rule.
func (c *Call) Serve() {
	if collection, namespace := c.s.collectionAt(c.R.URL.Path); collection != nil {
		if w := c.Query.Get("watch"); w == "true" || w == "1" {
			collection.watch(c, namespace)
		} else {
			collection.list(c, namespace)
		}
		return
	}
	switch {
	case c.Kind == Review:
		body, _ := io.ReadAll(c.R.Body)
		c.s.mu.Lock()
		allow := c.s.allow
		c.s.mu.Unlock()
		kind := "SubjectAccessReview"
		if strings.HasSuffix(c.R.URL.Path, "/selfsubjectaccessreviews") {
			kind = "Self" + kind
		}
		allowed := allow(bearerToken(c.R), string(body))
		c.W.WriteHeader(http.StatusCreated)
		fmt.Fprintf(c.W, `{"kind":%q,"apiVersion":"authorization.k8s.io/v1","status":{"allowed":%t}}`, kind, allowed)
	case c.R.URL.Path == "/readyz", c.R.URL.Path == "/livez":
		io.WriteString(c.W, "ok")
	default:
		c.discovery()
	}
}

func (c *Call) discovery() {
	if c.R.URL.Path == "/apis" {
		c.groups()
		return
	}
	var resources []string
	for _, collection := range c.s.collections {
		r := collection.Resource
		if strings.TrimSuffix(r.Path(), "/"+r.Name) == c.R.URL.Path {
			resources = append(resources, fmt.Sprintf(`{"name":%q,"namespaced":true,"kind":%q,"verbs":["get","list","watch"]}`, r.Name, r.Kind))
		}
	}
	if len(resources) == 0 {
		c.Fail(http.StatusNotFound, "NotFound", "the server could not find the requested resource", 0)
		return
	}
	fmt.Fprintf(c.W, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[%s]}`, strings.Join(resources, ","))
}

// groups answers with the API groups, each in one version.
func (c *Call) groups() {
	var groups []string
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for _, collection := range c.s.collections {
		if r := collection.Resource; r.Group != "" {
			groups = append(groups, fmt.Sprintf(`{"name":%q,"versions":[{"groupVersion":%q,"version":%q}]}`, r.Group, r.apiVersion(), r.Version))
		}
	}
	fmt.Fprintf(c.W, `{"kind":"APIGroupList","apiVersion":"v1","groups":[%s]}`, strings.Join(groups, ","))
}

// collectionAt returns the collection and the namespace of a path.
func (s *Server) collectionAt(path string) (c *Collection, namespace string) {
	before, rest, ok := strings.Cut(path, "/namespaces/")
	if ok {
		ns, name, _ := strings.Cut(rest, "/")
		return s.collections[before+"/"+name], ns
	}
	return s.collections[path], ""
}

// Fail answers with a Status. If retryAfter is positive, the client is told to wait that many
// seconds.
func (c *Call) Fail(code int, reason, message string, retryAfter int) {
	c.W.Header().Set("Content-Type", "application/json")
	if retryAfter > 0 {
		c.W.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	c.W.WriteHeader(code)
	io.WriteString(c.W, status(code, reason, message, retryAfter)+"\n")
}

// Write answers with 200 and the given bytes, and flushes each part.
func (c *Call) Write(parts ...string) {
	c.W.Header().Set("Content-Type", "application/json")
	for _, p := range parts {
		io.WriteString(c.W, p)
		c.W.(http.Flusher).Flush()
	}
}

// Hang does not answer until the client gives up.
func (c *Call) Hang() { <-c.R.Context().Done() }

// Abort breaks the connection.
func (c *Call) Abort() { panic(http.ErrAbortHandler) }

func status(code int, reason, message string, retryAfter int) string {
	details := ""
	if retryAfter > 0 {
		details = fmt.Sprintf(`,"details":{"retryAfterSeconds":%d}`, retryAfter)
	}
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"reason":%q%s,"code":%d}`,
		message, reason, details, code)
}

// ErrorEvent returns the line of an ERROR event.
func ErrorEvent(code int, reason, message string) string {
	return `{"type":"ERROR","object":` + status(code, reason, message, 0) + "}\n"
}

// object is one version of an object.
type object struct {
	namespace, name, uid string
	labels               map[string]string
	data                 string
	rv                   uint64

	generation int    // 0 for none
	members    string // instead of data: members, as JSON
}

func (o object) key() string {
	if o.namespace == "" {
		return o.name
	}
	return o.namespace + "/" + o.name
}

// json returns the object as r's watch sends it or, if item is true, as a list has it.
func (o object) json(r Resource, item bool) string {
	labels := ""
	if len(o.labels) > 0 {
		b, _ := json.Marshal(o.labels) // a map of strings
		labels = `"labels":` + string(b) + `,`
	}
	namespace, data := fmt.Sprintf(`"namespace":%q,`, o.namespace), fmt.Sprintf(`"data":{"v":%q}`, o.data)
	if o.members != "" {
		namespace, data = fmt.Sprintf(`"generation":%d,`, o.generation), o.members
	}
	meta := fmt.Sprintf(`"metadata":{%s"name":%q,%s"resourceVersion":"%d","uid":%q}`, labels, o.name, namespace, o.rv, o.uid)
	switch {
	case r.Group != "":
		return fmt.Sprintf(`{"apiVersion":%q,%s,"kind":%q,%s}`, r.apiVersion(), data, r.Kind, meta)
	case item:
		return fmt.Sprintf(`{%s,%s}`, meta, data)
	}
	return fmt.Sprintf(`{"kind":%q,"apiVersion":%q,%s,%s}`, r.Kind, r.apiVersion(), meta, data)
}

type change struct {
	kind string
	object
}

func (ch change) line(r Resource) string {
	return fmt.Sprintf("{\"type\":%q,\"object\":%s}\n", ch.kind, ch.json(r, false))
}

// Bookmark returns the line of a bookmark.
func (r Resource) Bookmark(rv uint64, end bool) string {
	annotations := ""
	if end {
		annotations = `,"annotations":{"k8s.io/initial-events-end":"true"}`
	}
	if r.Group != "" {
		annotations = strings.TrimPrefix(annotations, ",")
		if annotations != "" {
			annotations += ","
		}
		return fmt.Sprintf("{\"type\":\"BOOKMARK\",\"object\":{\"apiVersion\":%q,\"kind\":%q,\"metadata\":{%s\"resourceVersion\":\"%d\"}}}\n",
			r.apiVersion(), r.Kind, annotations, rv)
	}
	return fmt.Sprintf("{\"type\":\"BOOKMARK\",\"object\":{\"kind\":%q,\"apiVersion\":%q,\"metadata\":{\"resourceVersion\":\"%d\"%s}}}\n",
		r.Kind, r.apiVersion(), rv, annotations)
}

// Event returns the line of an event. The collection need not have the object.
func (r Resource) Event(kind, namespace, name string, rv uint64) string {
	return change{kind, object{namespace: namespace, name: name, uid: "u0", rv: rv}}.line(r)
}

// Collection is the objects of one resource.
type Collection struct {
	Resource
	s *Server

	// Guarded by s.mu.
	objects map[string]object
	history []change
	floor   uint64 // watches from before this get 410
}

// Put writes an object and returns its resourceVersion. labels are pairs of key and value.
func (c *Collection) Put(namespace, name, data string, labels ...string) uint64 {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	o := object{namespace: namespace, name: name, data: data}
	for i := 0; i < len(labels); i += 2 {
		if o.labels == nil {
			o.labels = make(map[string]string)
		}
		o.labels[labels[i]] = labels[i+1]
	}
	return c.putLocked(o)
}

// PutMembers writes a cluster-scoped object with a generation and, besides kind, apiVersion and
// metadata, the given members.
func (c *Collection) PutMembers(name string, generation int, members string) uint64 {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	return c.putLocked(object{name: name, generation: generation, members: members})
}

// Reform gives an object other data without a write, as a changed definition does to a custom
// resource. That ends the history.
func (c *Collection) Reform(namespace, name, data string) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	o := c.objects[namespace+"/"+name]
	o.data = data
	c.objects[o.key()] = o
	c.s.rv++
	c.history, c.floor = nil, c.s.rv
}

func (c *Collection) putLocked(o object) uint64 {
	kind := "MODIFIED"
	if old, ok := c.objects[o.key()]; ok {
		o.uid = old.uid
	} else {
		kind = "ADDED"
		c.s.uids++
		o.uid = fmt.Sprintf("u%d", c.s.uids)
	}
	c.s.rv++
	o.rv = c.s.rv
	c.objects[o.key()] = o
	c.changedLocked(change{kind, o})
	return o.rv
}

// Delete deletes an object, which must exist, and returns the deletion's resourceVersion.
func (c *Collection) Delete(namespace, name string) uint64 {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	o := c.objects[object{namespace: namespace, name: name}.key()]
	delete(c.objects, o.key())
	c.s.rv++
	o.rv = c.s.rv
	c.changedLocked(change{"DELETED", o})
	return o.rv
}

func (c *Collection) changedLocked(ch change) {
	c.history = append(c.history, ch)
	for st := range c.s.streams {
		if st.collection == c && ch.rv > st.from && (st.namespace == "" || st.namespace == ch.namespace) {
			st.pushLocked(ch.line(c.Resource))
		}
	}
}

// Reflector waits for the newest stream by which watchfan follows this collection, and returns it.
func (c *Collection) Reflector() *Stream {
	c.s.t.Helper()
	return c.s.stream(c, WatchList, Watch)
}

// SendBookmark sends each open stream of a kind a bookmark with the current resourceVersion.
func (c *Collection) SendBookmark(kinds ...Kind) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for st := range c.s.streams {
		if st.collection == c && slices.Contains(kinds, st.Kind) && c.s.rv > st.from {
			st.pushLocked(c.Resource.Bookmark(c.s.rv, false))
		}
	}
}

// Compact makes watches from before the current resourceVersion fail with 410.
func (c *Collection) Compact() {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.floor = c.s.rv
}

// State returns each object's resourceVersion by key, and the collection's.
func (c *Collection) State() (versions map[string]uint64, rv uint64) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	versions = make(map[string]uint64)
	for k, o := range c.objects {
		versions[k] = o.rv
	}
	return versions, c.s.rv
}

// Restore does what an etcd does that is restored from a backup: the collection has these objects,
// written one by one up to resourceVersion rv, and no history, and every connection breaks.
func (c *Collection) Restore(rv uint64, names ...string) {
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	c.objects, c.history, c.floor, c.s.rv = make(map[string]object), nil, rv, rv
	for i, name := range names {
		o := object{namespace: "ns", name: name, uid: "r" + name, rv: rv - uint64(i)}
		c.objects[o.key()] = o
	}
	for st := range c.s.streams {
		st.abort = true
		st.wakeLocked()
	}
}

// sortedLocked returns the objects within a namespace in key order.
func (c *Collection) sortedLocked(namespace string) []object {
	var sorted []object
	for _, key := range slices.Sorted(maps.Keys(c.objects)) {
		if o := c.objects[key]; namespace == "" || o.namespace == namespace {
			sorted = append(sorted, o)
		}
	}
	return sorted
}

func (c *Collection) list(call *Call, namespace string) {
	s := c.s
	s.mu.Lock()
	objects, rv := c.sortedLocked(namespace), s.rv
	if name, ok := strings.CutPrefix(call.Query.Get("fieldSelector"), "metadata.name="); ok {
		objects = slices.DeleteFunc(objects, func(o object) bool { return o.name != name })
	}
	if token := call.Query.Get("continue"); token != "" {
		objects = s.pages[token]
		_, number, _ := strings.Cut(token, "-")
		rv, _ = strconv.ParseUint(number, 10, 64)
	}
	limit, _ := strconv.Atoi(call.Query.Get("limit"))
	next := ""
	if limit > 0 && len(objects) > limit {
		next = fmt.Sprintf("page%d-%d", len(s.pages), rv)
		s.pages[next] = objects[limit:]
		objects = objects[:limit]
	}
	s.mu.Unlock()

	call.W.Header().Set("Content-Type", "application/json")
	items := make([]string, len(objects))
	for i, o := range objects {
		items[i] = o.json(c.Resource, true)
	}
	io.WriteString(call.W, c.ListBody(strconv.FormatUint(rv, 10), next, items...))
}

// ListBody returns a list of the resource.
func (r Resource) ListBody(rv, next string, items ...string) string {
	if r.Group != "" {
		return fmt.Sprintf("{\"apiVersion\":%q,\"items\":[%s],\"kind\":\"%sList\",\"metadata\":{\"continue\":%q,\"resourceVersion\":%q}}\n",
			r.apiVersion(), strings.Join(items, ","), r.Kind, next, rv)
	}
	if next != "" {
		next = fmt.Sprintf(`,"continue":%q`, next)
	}
	return fmt.Sprintf("{\"kind\":\"%sList\",\"apiVersion\":%q,\"metadata\":{\"resourceVersion\":%q%s},\"items\":[%s]}\n",
		r.Kind, r.apiVersion(), rv, next, strings.Join(items, ","))
}

// Stream is one open watch.
type Stream struct {
	Kind       Kind
	Query      url.Values
	s          *Server
	collection *Collection
	namespace  string
	number     int // counts up

	// Guarded by s.mu.
	from       uint64
	queue      []string
	waiting    []string // behind Hold
	held       bool
	end, abort bool
	wakec      chan struct{} // one token; never closed
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

func (c *Collection) watch(call *Call, namespace string) {
	s, q := c.s, call.Query
	initial := q.Get("sendInitialEvents") == "true"
	bookmarks := q.Get("allowWatchBookmarks") == "true" || q.Get("allowWatchBookmarks") == "1"
	from, _ := strconv.ParseUint(q.Get("resourceVersion"), 10, 64)
	seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))

	s.mu.Lock()
	if q.Has("sendInitialEvents") && !s.watchList {
		s.mu.Unlock()
		call.Fail(http.StatusUnprocessableEntity, "Invalid", "sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled", 0)
		return
	}
	if !q.Has("sendInitialEvents") && from == 0 {
		initial = true
	}
	st := &Stream{Kind: call.Kind, Query: q, s: s, collection: c, namespace: namespace, from: from, wakec: make(chan struct{}, 1), number: len(s.requests)}
	switch {
	case initial:
		if q.Get("fieldSelector") == "" {
			for _, o := range c.sortedLocked(namespace) {
				st.queue = append(st.queue, change{"ADDED", o}.line(c.Resource))
			}
		}
		if bookmarks && s.watchList {
			st.queue = append(st.queue, c.Resource.Bookmark(s.rv, true))
		}
		st.from = s.rv
	case from == 0:
		st.from = s.rv
	case from < c.floor:
		st.queue = append(st.queue, ErrorEvent(http.StatusGone, "Expired", fmt.Sprintf("too old resource version: %d (%d)", from, c.floor)))
		st.end = true
	default:
		for _, ch := range c.history {
			if ch.rv > from && (namespace == "" || ch.namespace == namespace) {
				st.queue = append(st.queue, ch.line(c.Resource))
			}
		}
	}
	if bookmarks && seconds > 0 && seconds < 60 && s.bookmarkAfter >= 0 && c.Resource != Events {
		defer time.AfterFunc(s.bookmarkAfter, func() {
			st.do(func() {
				if s.rv > st.from {
					st.queue = append(st.queue, c.Resource.Bookmark(s.rv, false))
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

func (st *Stream) run(call *Call, timeout time.Duration, delay func(Kind) time.Duration) {
	call.W.Header().Set("Content-Type", "application/json")
	call.W.WriteHeader(http.StatusOK)
	flusher := call.W.(http.Flusher)
	flusher.Flush()
	expired := time.After(timeout)
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
				time.Sleep(delay(st.Kind))
			}
			if _, err := io.WriteString(call.W, line); err != nil {
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
