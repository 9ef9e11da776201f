package chaos_test

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// form is how a client asks for objects. Each name has a lane of its own in watchfan.
type form struct {
	name   string // as watchfan's log has it
	accept string
	lean   bool // without metadata.managedFields
	quiet  bool // in the quiet view
}

func (f form) protobuf() bool { return strings.HasPrefix(f.name, "protobuf") }

// lists is f for a list.
func (f form) lists() form {
	f.accept = strings.Replace(f.accept, "as=PartialObjectMetadata;", "as=PartialObjectMetadataList;", 1)
	return f
}

func (f form) metadata() bool { return strings.Contains(f.name, "metadata") }

// of returns the digest that a client in form f is shown, unless the view leaves something out.
func (f form) of(d digests) digest {
	if f.metadata() {
		return d.meta
	}
	return d.full
}

// The forms that clients ask for.
var (
	jsonForm         = form{name: "json", accept: "application/json"}
	protobufForm     = form{name: "protobuf", accept: "application/vnd.kubernetes.protobuf"}
	jsonMetaForm     = form{name: "json-metadata-v1", accept: jsonForm.accept + asMetadata}
	protobufMetaForm = form{name: "protobuf-metadata-v1", accept: protobufForm.accept + asMetadata}

	allForms = []form{jsonForm, protobufForm, jsonMetaForm, protobufMetaForm}
)

const asMetadata = ";as=PartialObjectMetadata;g=meta.k8s.io;v=v1"

// event is one event of a watch, or one item of a list, which has no type.
type event struct {
	typ     string
	rv      uint64
	key     string // namespace/name
	end     bool   // the bookmark behind the initial events
	code    int    // of an ERROR
	message string

	shown        // the object as it came
	less   shown // and without metadata.managedFields
	inLean bool  // the answer has to be without metadata.managedFields
}

// shown is an object as a client was shown it.
type shown struct {
	content digest // of the object or its metadata, see digest
	bytes   digest // of the object as it was sent
}

func (e event) String() string {
	switch {
	case e.typ == "ERROR":
		return fmt.Sprintf("ERROR %d %q", e.code, e.message)
	case e.end:
		return fmt.Sprintf("BOOKMARK@%d, the end of the initial events", e.rv)
	}
	return fmt.Sprintf("%s %s@%d", e.typ, e.key, e.rv)
}

func parseVersion(s string) uint64 {
	rv, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		return 0 // no object has it
	}
	return rv
}

// eventReader reads the events of a watch.
type eventReader struct {
	form   form
	in     *proxytest.EventReader
	lean   bool // the objects have to be without metadata.managedFields
	untold bool // the first object says whether they have to
}

func newEventReader(f form, body io.Reader, lean bool) *eventReader {
	return &eventReader{form: f, in: proxytest.NewEventReader(body, f.protobuf()), lean: lean}
}

// next returns the next event. io.EOF is a proper end.
func (r *eventReader) next() (event, error) {
	content, err := r.in.Next()
	if err != nil {
		return event{}, err
	}
	e, err := parsed.event(r.form, content, false)
	if r.untold && e.key != "" {
		r.untold, r.lean = false, e.shown == e.less
	}
	e.inLean = r.lean
	return e, err
}

// parsed are the events, and the items of lists, that any client has read. Most clients read the same.
var parsed = parseCache{events: make(map[parseKey]event)}

type parseCache struct {
	mu     sync.RWMutex
	events map[parseKey]event
}

type parseKey struct {
	form  form
	item  bool
	bytes digest
}

// event returns what content is, an event or an item. The error is a violation.
func (c *parseCache) event(f form, content []byte, item bool) (e event, err error) {
	key := parseKey{f, item, digestBytes(content)}
	c.mu.RLock()
	e, ok := c.events[key]
	c.mu.RUnlock()
	if ok {
		return e, nil
	}
	if item {
		e, err = parseObject(f, "", content, content)
	} else {
		e, err = f.parse(content)
	}
	if err != nil {
		return event{}, &violation{fmt.Errorf("%.300q: %w", content, err)}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if len(c.events) > 50_000 {
		clear(c.events)
	}
	c.events[key] = e
	return e, nil
}

func (f form) parse(content []byte) (event, error) {
	var e metav1.WatchEvent
	decode, inJSON := e.Unmarshal, inJSON
	if !f.protobuf() {
		decode = func(content []byte) error { return json.Unmarshal(content, &e) }
		inJSON = func(object []byte) ([]byte, error) { return object, nil }
	}
	if err := decode(content); err != nil {
		return event{}, err
	}
	object, err := inJSON(e.Object.Raw)
	if err != nil {
		return event{}, err
	}
	return parseObject(f, e.Type, object, e.Object.Raw)
}

// parseObject reads an event about an object. content is the object in JSON, sent are the bytes as
// they came.
func parseObject(f form, typ string, content, sent []byte) (event, error) {
	switch typ {
	case "ERROR":
		var status metav1.Status
		err := json.Unmarshal(content, &status)
		return event{typ: typ, code: int(status.Code), message: status.Message}, err
	case "BOOKMARK":
		var bookmark metav1.PartialObjectMetadata
		err := json.Unmarshal(content, &bookmark)
		return event{typ: typ, rv: parseVersion(bookmark.ResourceVersion),
			end: bookmark.Annotations[metav1.InitialEventsAnnotationKey] == "true"}, err
	case "ADDED", "MODIFIED", "DELETED", "":
		o, err := readObject(content)
		if err != nil {
			return event{}, err
		}
		less, err := f.less(sent)
		return event{typ: typ, rv: o.rv, key: o.namespace + "/" + o.name,
			shown: shown{f.of(o.whole), digestBytes(sent)}, less: shown{f.of(o.lean), digestBytes(less)}}, err
	}
	return event{}, fmt.Errorf("unknown type %q", typ)
}

// list is a list, or a page of one, in JSON.
type list struct {
	rv    uint64
	next  string // continue token
	items []event
}

// list parses a list, or a page of one, of what sel selects.
func (a answer) list(f form, sel filter) (list, error) {
	var l struct {
		metav1.ListMeta `json:"metadata"`
		Items           []json.RawMessage
	}
	if err := json.Unmarshal(a.body, &l); err != nil {
		return list{}, fmt.Errorf("list %.300q: %w", a.body, err)
	}
	named := sel.resource != "widgets" && !f.metadata() // kube-apiserver does not name others
	if shard := cmp.Or(l.ShardInfo, new(metav1.ShardInfo)).Selector; named && shard != sel.half.selector() {
		return list{}, fmt.Errorf("a list of %s says that it is of the shard %q", sel, shard)
	}
	out := list{rv: parseVersion(l.ResourceVersion), next: l.Continue}
	for _, item := range l.Items {
		e, err := parsed.event(f, item, true)
		if err != nil {
			return list{}, err
		}
		e.inLean = f.lean && !a.passed
		out.items = append(out.items, e)
	}
	return out, nil
}
