package proxytest

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Collection is the objects of one resource.
type Collection struct {
	Resource
	s     *Server
	typed bool // see Server.AddTyped

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
	o.identify(c.Resource)
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
	o.identify(c.Resource)
	c.changedLocked(change{"DELETED", o})
	return o.rv
}

func (c *Collection) changedLocked(ch change) {
	c.history = append(c.history, ch)
	for st := range c.s.streams {
		if st.collection == c && ch.rv > st.from && (st.namespace == "" || st.namespace == ch.namespace) {
			st.pushLocked(st.line(ch))
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
			st.pushLocked(st.bookmark(false))
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

// sorted returns those of objects that are within a namespace in key order.
func sorted(objects map[string]object, namespace string) []object {
	var within []object
	for _, key := range slices.Sorted(maps.Keys(objects)) {
		if o := objects[key]; namespace == "" || o.namespace == namespace {
			within = append(within, o)
		}
	}
	return within
}

// atLocked returns the objects as of resourceVersion rv, by key. The history must reach back to their
// creation.
func (c *Collection) atLocked(rv uint64) map[string]object {
	objects := make(map[string]object)
	for _, ch := range c.history {
		if ch.rv > rv {
			break
		}
		objects[ch.key()] = ch.object
		if ch.kind == "DELETED" {
			delete(objects, ch.key())
		}
	}
	return objects
}

func (c *Collection) list(call *Call, namespace string) {
	s := c.s
	s.mu.Lock()
	rv, all := s.rv, c.objects
	if call.Query.Get("resourceVersionMatch") == "Exact" && call.Query.Get("continue") == "" {
		rv, _ = strconv.ParseUint(call.Query.Get("resourceVersion"), 10, 64)
		all = c.atLocked(rv)
	}
	objects := sorted(all, namespace)
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

	if c.protobufs(call) {
		call.W.Header().Set("Content-Type", ProtobufType)
		_, _ = call.W.Write(c.protobufList(rv, next, objects))
		return
	}
	call.W.Header().Set("Content-Type", "application/json")
	items := make([]string, len(objects))
	for i, o := range objects {
		items[i] = o.json(c.Resource, true)
	}
	io.WriteString(call.W, c.ListBody(strconv.FormatUint(rv, 10), next, items...))
}
