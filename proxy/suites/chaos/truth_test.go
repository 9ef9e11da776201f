package chaos_test

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/runtime/serializer/protobuf"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
)

// truth is the history, as one watch of etcd from its first revision brought it. The watch is open
// all the time, so that no compaction can hurt it. A key's mod revision is its object's
// resourceVersion.
type truth struct {
	mu        sync.Mutex
	moved     *sync.Cond // head has moved, or somebody has waited for too long
	head      uint64     // everything up to it is known
	err       error      // the watch has ended
	histories map[string]*history
	record    *record // nil: none is kept
}

// history is the history of one resource. It only grows.
type history struct {
	changes []change
	objects map[string][]*object // versions by key, in their order; one without a name is the absence of the object
}

// change is one revision of one key.
type change struct {
	rv       uint64
	key      string
	old, cur *object // nil: absent before, absent now
}

// object is one version of an object.
type object struct {
	rv              uint64
	namespace, name string
	labels          labels.Set
	half            half    // the one that has the object
	whole, lean     digests // with metadata.managedFields and without
	quiet           digest  // in the quiet view
}

// digests are of an object and of its metadata.
type digests struct{ full, meta digest }

// digest is of an object's JSON, or of its metadata's, in one canonical form: without apiVersion
// and kind, which the items of a list lack, and without the resourceVersion, which is compared as a
// number.
type digest [16]byte

// prefixes are the resources that we follow, and their keys in etcd.
var prefixes = map[string]string{"configmaps": "/registry/configmaps/", "widgets": "/registry/example.com/widgets/"}

func newTruth() *truth {
	tr := &truth{histories: make(map[string]*history)}
	tr.moved = sync.NewCond(&tr.mu)
	for resource := range prefixes {
		tr.histories[resource] = &history{objects: make(map[string][]*object)}
	}
	return tr
}

// follow watches etcd until ctx ends. Any other end is an error, because there is no oracle without
// it.
func (tr *truth) follow(ctx context.Context, endpoint string) {
	err := tr.watch(ctx, endpoint)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	if ctx.Err() == nil {
		tr.err = fmt.Errorf("watch etcd: %w", err)
	}
	tr.moved.Broadcast()
}

// watch speaks JSON with etcd's gateway. It watches all keys, so that head is each revision in
// turn.
func (tr *truth) watch(ctx context.Context, endpoint string) error {
	const everything = `{"create_request":{"key":"AA==","range_end":"AA==","start_revision":"1","prev_kv":true}}`
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, endpoint+"/v3/watch", strings.NewReader(everything))
	if err != nil {
		return err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	for decoder := json.NewDecoder(resp.Body); ; {
		var message struct {
			Error  json.RawMessage
			Result struct {
				Canceled        bool
				CancelReason    string `json:"cancel_reason"`
				CompactRevision string `json:"compact_revision"`
				Events          []etcdEvent
			}
		}
		if err := decoder.Decode(&message); err != nil {
			return err
		}
		if message.Error != nil || message.Result.Canceled {
			return fmt.Errorf("%s %s, compacted at %q", message.Error, message.Result.CancelReason,
				message.Result.CompactRevision)
		}
		if err := tr.add(message.Result.Events); err != nil {
			return err
		}
	}
}

type etcdEvent struct {
	Type string
	KV   struct {
		Key, Value  []byte
		ModRevision uint64 `json:"mod_revision,string"`
	}
}

func (tr *truth) add(events []etcdEvent) error {
	if len(events) == 0 {
		return nil
	}
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for _, e := range events {
		resource, key, o := "", "", new(object)
		for one, prefix := range prefixes {
			if rest, ok := strings.CutPrefix(string(e.KV.Key), prefix); ok {
				resource, key = one, rest
			}
		}
		if resource != "" {
			if e.Type != "DELETE" {
				var err error
				if o, err = readStored(resource, e.KV.Value); err != nil {
					return fmt.Errorf("%s: %w", e.KV.Key, err)
				}
			}
			o.rv = e.KV.ModRevision
			tr.histories[resource].add(key, o)
		}
		tr.record.change(e.KV.ModRevision, resource, key, o)
		tr.head = e.KV.ModRevision
	}
	tr.moved.Broadcast()
	return nil
}

func (h *history) add(key string, o *object) {
	versions := h.objects[key]
	c := change{rv: o.rv, key: key}
	if n := len(versions); n > 0 && versions[n-1].name != "" {
		c.old = versions[n-1]
	}
	if o.name != "" {
		c.cur = o
	}
	h.changes = append(h.changes, c)
	h.objects[key] = append(versions, o)
}

// selfDescribed is how stored CBOR begins (RFC 8949, 3.4.6).
var selfDescribed = []byte{0xd9, 0xd9, 0xf7}

// readStored reads an object as kube-apiserver stores it: protobuf behind a prefix; for a custom
// resource JSON, or CBOR with the feature gate CBORServingAndStorage.
func readStored(resource string, value []byte) (*object, error) {
	if bytes.HasPrefix(value, selfDescribed) {
		var fields any
		err := direct.Unmarshal(value, &fields)
		if err != nil {
			return nil, err
		}
		if value, err = json.Marshal(fields); err != nil {
			return nil, err
		}
	}
	if resource == "configmaps" {
		var err error
		if value, err = inJSON(value); err != nil {
			return nil, err
		}
	}
	return readObject(value)
}

// objects has the types that are sent and stored in protobuf.
var objects = func() *runtime.Scheme {
	s := runtime.NewScheme()
	utilruntime.Must(corev1.AddToScheme(s))
	utilruntime.Must(metav1.AddMetaToScheme(s))
	return s
}()

var inProtobuf = protobuf.NewSerializer(objects, objects)

// inJSON returns the JSON of an object in protobuf.
func inJSON(content []byte) ([]byte, error) {
	o, err := runtime.Decode(inProtobuf, content)
	if err != nil {
		return nil, err
	}
	return json.Marshal(o)
}

// readObject reads the JSON of an object.
func readObject(content []byte) (*object, error) {
	var meta metav1.PartialObjectMetadata
	var fields map[string]any
	if err := json.Unmarshal(content, &meta); err != nil {
		return nil, err
	}
	if err := json.Unmarshal(content, &fields); err != nil {
		return nil, err
	}
	delete(fields, "apiVersion")
	delete(fields, "kind")
	metadata, ok := fields["metadata"].(map[string]any)
	if !ok || meta.Name == "" {
		return nil, fmt.Errorf("no object: %.200q", content)
	}
	delete(metadata, "resourceVersion")
	o := &object{rv: parseVersion(meta.ResourceVersion), namespace: meta.Namespace, name: meta.Name,
		labels: meta.Labels, half: halfOf(string(meta.UID))}
	o.whole = digests{digestOf(fields), digestOf(metadata)}
	o.lean = o.whole
	if _, managed := metadata["managedFields"]; managed {
		delete(metadata, "managedFields")
		o.lean = digests{digestOf(fields), digestOf(metadata)}
	}
	o.quiet = digestOf(map[string]any{"metadata": metadata})
	return o, nil
}

func digestOf(v any) digest {
	canonical, err := json.Marshal(v) // sorts the keys
	if err != nil {
		panic(err) // it came out of JSON
	}
	return digestBytes(canonical)
}

func digestBytes(b []byte) digest {
	sum := sha256.Sum256(b)
	return digest(sum[:16])
}

// patience is how long to wait for anything, on a machine that is much too small.
const patience = 2 * time.Minute

// wait waits until everything up to rv is known.
func (tr *truth) wait(rv uint64) error {
	begin := time.Now()
	late := time.AfterFunc(patience, tr.moved.Broadcast) //testlint:allow timer it only ends what hangs
	defer late.Stop()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for ; tr.head < rv && tr.err == nil; tr.moved.Wait() {
		if time.Since(begin) >= patience { //testlint:allow elapsed it only ends what hangs
			return fmt.Errorf("a client received resourceVersion %d, which etcd has not reached: it is at %d", rv, tr.head)
		}
	}
	if tr.head < rv {
		return tr.err
	}
	return nil
}

// filter is a client's selection.
type filter struct {
	resource  string
	namespace string
	labels    labels.Selector
	fields    fields.Selector
	name      string // the only one that fields select; "": any
	half      half
	quiet     bool // in the quiet view
}

func newFilter(resource, namespace, labelSelector, fieldSelector string) filter {
	f := filter{resource: resource, namespace: namespace, fields: fields.ParseSelectorOrDie(fieldSelector)}
	var err error
	if f.labels, err = labels.Parse(labelSelector); err != nil {
		panic(err)
	}
	f.name, _ = f.fields.RequiresExactMatch("metadata.name")
	return f
}

// of returns what f selects in one half.
func (f filter) of(h half) filter {
	f.half = h
	return f
}

func (f filter) String() string {
	text := fmt.Sprintf("%s in %q, labels %q, fields %q, %s", f.resource, f.namespace, f.labels, f.fields, f.half)
	if f.quiet {
		text += ", in the quiet view"
	}
	return text
}

// ask adds f's selectors to a query.
func (f filter) ask(query url.Values) {
	for parameter, selector := range map[string]string{"labelSelector": f.labels.String(),
		"fieldSelector": f.fields.String(), "shardSelector": f.half.selector()} {
		if selector != "" {
			query.Set(parameter, selector)
		}
	}
}

// match reports whether f selects o. Most filters are of one name, and are compared with most changes.
func (f filter) match(o *object) bool {
	return o != nil && o.name != "" && (f.name == "" || f.name == o.name) &&
		(f.half == bothHalves || f.half == o.half) && (f.namespace == "" || f.namespace == o.namespace) &&
		f.labels.Matches(o.labels) && (!f.quiet || quietSelector.Matches(o.labels)) &&
		(f.fields.Empty() || f.fields.Matches(fields.Set{"metadata.name": o.name, "metadata.namespace": o.namespace}))
}

// told is one event that a watch has to bring.
type told struct {
	typ string
	rv  uint64
	key string
	as  *object // what it shows
}

func (e told) String() string { return fmt.Sprintf("%s %s@%d", e.typ, e.key, e.rv) }

// tell returns the event that c is for a watch with f, if any.
func (f filter) tell(c change) (told, bool) {
	switch old, cur := f.match(c.old), f.match(c.cur); {
	case old && cur && f.unseen(c.old, c.cur):
	case old && cur:
		return told{"MODIFIED", c.rv, c.key, c.cur}, true
	case cur:
		return told{"ADDED", c.rv, c.key, c.cur}, true
	case old:
		return told{"DELETED", c.rv, c.key, c.old}, true
	}
	return told{}, false
}

// next returns the first event behind rv for f, if there is one up to head.
func (tr *truth) next(f filter, rv uint64) (told, bool) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	changes := tr.histories[f.resource].changes
	i, _ := slices.BinarySearchFunc(changes, rv+1, func(c change, rv uint64) int { return cmp.Compare(c.rv, rv) })
	for _, c := range changes[i:] {
		if e, ok := f.tell(c); ok {
			return e, true
		}
	}
	return told{}, false
}

// at returns the objects that f selects as of rv, by key.
func (tr *truth) at(f filter, rv uint64) map[string]*object {
	state := make(map[string]*object)
	tr.mu.Lock()
	defer tr.mu.Unlock()
	for key, versions := range tr.histories[f.resource].objects {
		if o := versionAt(versions, rv); f.match(o) {
			state[key] = o
		}
	}
	return state
}

// versionAt returns the last version up to rv; nil if there is none.
func versionAt(versions []*object, rv uint64) *object {
	i, _ := slices.BinarySearchFunc(versions, rv+1, func(o *object, rv uint64) int { return cmp.Compare(o.rv, rv) })
	if i == 0 {
		return nil
	}
	return versions[i-1]
}

// versions returns all versions of an object so far, in their order.
func (tr *truth) versions(resource, key string) []*object {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.histories[resource].objects[key] // it only grows
}

// last returns the newest version of an object: nil, or one without a name, if it does not exist.
func (tr *truth) last(resource, key string) *object {
	return versionAt(tr.versions(resource, key), math.MaxInt64)
}

func (tr *truth) now() uint64 {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.head
}

// differences returns what a list as of to shows f's clients that know the state as of from.
// removals are objects that are gone, replaced or no longer selected, without a resourceVersion.
// versions are the newest of the other objects that changed, in order.
func (tr *truth) differences(f filter, from, to uint64) (removals, versions []told) {
	before, after := tr.at(f, from), tr.at(f, to)
	for key, old := range before {
		if after[key] == nil || gone(tr.versions(f.resource, key), old.rv, to) {
			removals = append(removals, told{"DELETED", 0, key, old})
			delete(before, key)
		}
	}
	for key, o := range after {
		switch old := before[key]; {
		case old == nil:
			versions = append(versions, told{"ADDED", o.rv, key, o})
		case old.rv != o.rv && !f.unseen(old, o):
			versions = append(versions, told{"MODIFIED", o.rv, key, o})
		}
	}
	slices.SortFunc(removals, func(a, b told) int { return cmp.Compare(a.key, b.key) })
	slices.SortFunc(versions, func(a, b told) int { return cmp.Compare(a.rv, b.rv) })
	return removals, versions
}

// gone reports whether an object was absent at some moment behind from, up to to.
func gone(versions []*object, from, to uint64) bool {
	return slices.ContainsFunc(versions, func(o *object) bool { return from < o.rv && o.rv <= to && o.name == "" })
}

// total returns the number of changes of all resources.
func (tr *truth) total() int {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	n := 0
	for _, h := range tr.histories {
		n += len(h.changes)
	}
	return n
}
