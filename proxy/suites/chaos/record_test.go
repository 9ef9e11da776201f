package chaos_test

import (
	"bufio"
	"compress/gzip"
	"encoding/hex"
	"encoding/json"
	"errors"
	"os"
	"strings"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/labels"
)

// record is a file of everything that the clients were told, and of etcd's history. The program in
// judge reads it; its documentation has the form. A nil record keeps nothing.
type record struct {
	mu      sync.Mutex
	file    *os.File
	packed  *gzip.Writer
	buffer  *bufio.Writer
	encoder *json.Encoder
	err     error // the first
}

// line is one line of a record. Times are in nanoseconds since the suite began.
type line struct {
	Kind   string     `json:"kind"`
	Client string     `json:"client,omitempty"`
	At     int64      `json:"at,omitempty"`
	Until  int64      `json:"until,omitempty"`
	RV     uint64     `json:"rv,omitempty"`
	Key    string     `json:"key,omitempty"`
	Value  string     `json:"value,omitempty"`
	Meta   string     `json:"meta,omitempty"`
	Lean   string     `json:"lean,omitempty"`
	Scant  string     `json:"scant,omitempty"`
	Quiet  string     `json:"quiet,omitempty"`
	Half   half       `json:"half,omitempty"`
	Labels labels.Set `json:"labels,omitempty"`

	Scope   *scope        `json:"scope,omitempty"`
	Asked   string        `json:"asked,omitempty"`
	Match   string        `json:"match,omitempty"`
	Initial bool          `json:"initial,omitempty"`
	Objects []objectShown `json:"objects,omitempty"`

	Type   string `json:"type,omitempty"`
	Relist uint64 `json:"relist,omitempty"`
	More   bool   `json:"more,omitempty"`
	Error  string `json:"error,omitempty"`
	Seed   uint64 `json:"seed,omitempty"`
}

// scope is what a request selects, and in which form.
type scope struct {
	Resource  string `json:"resource"`
	Namespace string `json:"namespace,omitempty"`
	Name      string `json:"name,omitempty"` // of a get
	Labels    string `json:"labels,omitempty"`
	Fields    string `json:"fields,omitempty"`
	Metadata  bool   `json:"metadata,omitempty"` // without the rest of the objects
	Lean      bool   `json:"lean,omitempty"`     // without metadata.managedFields
	Half      half   `json:"half,omitempty"`
	Quiet     bool   `json:"quiet,omitempty"` // in the quiet view, whose selector is one of Labels
}

// objectShown is an item of a list, or the object of a get.
type objectShown struct {
	Key   string `json:"key"`
	RV    uint64 `json:"rv"`
	Value string `json:"value"`
}

// newRecord creates the file.
func newRecord(name string, seed uint64) (*record, error) {
	file, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	r := &record{file: file}
	if r.packed, err = gzip.NewWriterLevel(file, gzip.BestSpeed); err != nil {
		return nil, err
	}
	r.buffer = bufio.NewWriterSize(r.packed, 1<<20)
	r.encoder = json.NewEncoder(r.buffer)
	r.add(line{Kind: "run", Seed: seed})
	return r, nil
}

// close writes the rest, behind a line that says that the record is complete.
func (r *record) close() error {
	if r == nil {
		return nil
	}
	r.add(line{Kind: "done", At: moment()})
	r.mu.Lock()
	defer r.mu.Unlock()
	return errors.Join(r.err, r.buffer.Flush(), r.packed.Close(), r.file.Close())
}

// moment is now, by the clock that nothing sets.
func moment() int64 { return time.Since(started).Nanoseconds() }

func (r *record) add(l line) {
	if r == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if err := r.encoder.Encode(l); r.err == nil {
		r.err = err
	}
}

// change notes a revision of etcd. Objects that nobody follows have no key.
func (r *record) change(rv uint64, resource, key string, o *object) {
	l := line{Kind: "change", At: moment(), RV: rv}
	if resource != "" {
		l.Key = resource + "/" + key
	}
	if o.name != "" {
		l.Value, l.Meta, l.Labels, l.Half = o.whole.full.String(), o.whole.meta.String(), o.labels, o.half
		l.Lean, l.Scant, l.Quiet = o.lean.full.String(), o.lean.meta.String(), o.quiet.String()
	}
	r.add(l)
}

// write notes an acknowledged write. begin is 0 if the object may have been as it is before.
func (r *record) write(client string, begin, end int64, rv uint64) {
	r.add(line{Kind: "write", Client: client, At: begin, Until: end, RV: rv})
}

// read notes an answer. A get has a scope with a name, and no resourceVersion.
func (r *record) read(client string, begin, end int64, s *scope, asked, match string, rv uint64, items []event) {
	l := line{Kind: "read", Client: client, At: begin, Until: end, Scope: s, Asked: asked, Match: match, RV: rv}
	for _, e := range items {
		l.Objects = append(l.Objects, objectShown{e.key, e.rv, e.contentFor(s.Lean).String()})
	}
	r.add(l)
}

// watch notes the beginning of a stream: behind the resourceVersion that was asked for, or with
// initial events.
func (r *record) watch(client string, begin int64, s *scope, asked string, initial bool) {
	r.add(line{Kind: "watch", Client: client, At: begin, Scope: s, Asked: asked, Initial: initial})
}

// event notes an event of a lean client or another. relist is the list that explains it
// (cursor.explained), more that the list has more differences.
func (r *record) event(client string, e event, lean bool, relist uint64, more bool) {
	l := line{Kind: "event", Client: client, At: moment(), Type: e.typ, Key: e.key, RV: e.rv, Initial: e.end,
		Relist: relist, More: more, Error: e.message}
	if e.key != "" {
		l.Value = e.contentFor(lean).String()
	}
	r.add(l)
}

// end notes the end of a stream.
func (r *record) end(client string, err error) {
	r.add(line{Kind: "end", Client: client, At: moment(), Error: err.Error()})
}

func (d digest) String() string { return hex.EncodeToString(d[:]) }

// scope is the form of a request with f.
func (f filter) scope(as form) *scope {
	s := &scope{Resource: f.resource, Namespace: f.namespace, Labels: f.labels.String(), Fields: f.fields.String(),
		Metadata: as.metadata(), Lean: as.lean, Half: f.half, Quiet: f.quiet}
	if f.quiet {
		s.Labels = strings.Trim(s.Labels+","+quietSelector.String(), ",")
	}
	return s
}
