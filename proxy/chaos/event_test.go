package chaos_test

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/proxytest"
)

// form is how a client asks for objects. Each name has a lane of its own in watchfan.
type form struct {
	name   string // as watchfan's log has it
	accept string
	lean   bool // without metadata.managedFields
}

func (f form) protobuf() bool { return strings.HasPrefix(f.name, "protobuf") }

// lists is f for a list.
func (f form) lists() form {
	f.accept = strings.Replace(f.accept, "as=PartialObjectMetadata;", "as=PartialObjectMetadataList;", 1)
	return f
}

func (f form) metadata() bool { return strings.Contains(f.name, "metadata") }

// of returns the digest that a client in form f is shown.
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
	e, err := parsed.event(r.form, content)
	if r.untold && e.key != "" {
		r.untold, r.lean = false, e.shown == e.less
	}
	e.inLean = r.lean
	return e, err
}

// parsed are the events that any client has read. Most clients read the same.
var parsed = parseCache{events: make(map[parseKey]event)}

type parseCache struct {
	mu     sync.RWMutex
	events map[parseKey]event
}

type parseKey struct {
	form  form
	bytes digest
}

func (c *parseCache) event(f form, content []byte) (event, error) {
	key := parseKey{f, digestBytes(content)}
	c.mu.RLock()
	e, ok := c.events[key]
	c.mu.RUnlock()
	if ok {
		return e, nil
	}
	e, err := f.parse(content)
	if err != nil {
		return event{}, &violation{fmt.Errorf("event %.300q: %w", content, err)}
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
	if f.protobuf() {
		return parseFrame(f, content)
	}
	return parseLine(f, content)
}

func parseLine(f form, line []byte) (event, error) {
	var e struct {
		Type   string
		Object json.RawMessage
	}
	if err := json.Unmarshal(line, &e); err != nil {
		return event{}, err
	}
	return parseObject(f, e.Type, e.Object, e.Object)
}

func parseFrame(f form, frame []byte) (event, error) {
	var e metav1.WatchEvent
	if err := e.Unmarshal(frame); err != nil {
		return event{}, err
	}
	sent := e.Object.Raw
	var object any
	switch {
	case e.Type == "ERROR":
		raw, err := readUnknown(sent)
		if err != nil {
			return event{}, err
		}
		status := new(metav1.Status)
		if err := status.Unmarshal(raw); err != nil {
			return event{}, err
		}
		object = status
	case f.metadata():
		raw, err := readUnknown(sent)
		if err != nil {
			return event{}, err
		}
		partial := new(metav1.PartialObjectMetadata)
		if err := partial.Unmarshal(raw); err != nil {
			return event{}, err
		}
		object = partial
	default:
		typed, err := readConfigMap(sent)
		if err != nil {
			return event{}, err
		}
		object = typed
	}
	content, err := json.Marshal(object)
	if err != nil {
		return event{}, err
	}
	return parseObject(f, e.Type, content, sent)
}

// parseObject reads an event about an object. content is the object in JSON, sent are the bytes as
// they came.
func parseObject(f form, typ string, content, sent []byte) (event, error) {
	e := event{typ: typ}
	switch typ {
	case "ERROR":
		var status struct {
			Code    int
			Message string
		}
		err := json.Unmarshal(content, &status)
		e.code, e.message = status.Code, status.Message
		return e, err
	case "BOOKMARK":
		var bookmark struct {
			Metadata struct {
				ResourceVersion string
				Annotations     map[string]string
			}
		}
		err := json.Unmarshal(content, &bookmark)
		e.rv = parseVersion(bookmark.Metadata.ResourceVersion)
		e.end = bookmark.Metadata.Annotations[metav1.InitialEventsAnnotationKey] == "true"
		return e, err
	case "ADDED", "MODIFIED", "DELETED", "":
		o, err := readObject(content)
		if err != nil {
			return event{}, err
		}
		less, err := f.less(sent)
		if err != nil {
			return event{}, err
		}
		e.rv, e.key = o.rv, o.namespace+"/"+o.name
		e.shown = shown{f.of(o.whole), digestBytes(sent)}
		e.less = shown{f.of(o.lean), digestBytes(less)}
		return e, nil
	}
	return event{}, fmt.Errorf("unknown type %q", typ)
}

// list is a list, or a page of one, in JSON.
type list struct {
	rv    uint64
	next  string // continue token
	shard string // the shardSelector that it says it is of
	items []event
}

// list parses a list, or a page of one, of what sel selects. The error is a violation.
func (a answer) list(f form, sel filter) (list, error) {
	l, err := parseList(f, a.body, f.lean && !a.passed)
	named := sel.resource != "widgets" && !f.metadata() // kube-apiserver does not name others
	if err == nil && named && l.shard != sel.half.selector() {
		err = fmt.Errorf("a list of %s says that it is of the shard %q", sel, l.shard)
	}
	return l, err
}

// parseList parses a list, which is without managedFields if lean is true.
func parseList(f form, body []byte, lean bool) (list, error) {
	var l struct {
		Metadata struct {
			ResourceVersion, Continue string
			ShardInfo                 struct{ Selector string }
		}
		Items []json.RawMessage
	}
	if err := json.Unmarshal(body, &l); err != nil {
		return list{}, fmt.Errorf("list %.300q: %w", body, err)
	}
	out := list{rv: parseVersion(l.Metadata.ResourceVersion), next: l.Metadata.Continue,
		shard: l.Metadata.ShardInfo.Selector}
	for _, item := range l.Items {
		e, err := parsed.item(f, item)
		if err != nil {
			return list{}, err
		}
		e.inLean = lean
		out.items = append(out.items, e)
	}
	return out, nil
}

// item parses an item of a list.
func (c *parseCache) item(f form, content []byte) (event, error) {
	key := parseKey{form{name: f.name, accept: "item"}, digestBytes(content)}
	c.mu.RLock()
	e, ok := c.events[key]
	c.mu.RUnlock()
	if ok {
		return e, nil
	}
	e, err := parseObject(f, "", content, content)
	if err != nil {
		return event{}, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.events[key] = e
	return e, nil
}
