package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"go.etcd.io/etcd/tests/v3/robustness/model"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// world is an etcd that stores what one selector selects, in one form: with all content or metadata
// only, with managedFields or without. It has the revisions of the real one. An object that begins to match is created
// there, and one that no longer matches is deleted. A revision that changes nothing of the
// selection writes to the key elsewhere. So does one of which the quiet view shows nothing.
type world struct {
	selection
	requests []model.EtcdRequest  // by revision, from the second on
	versions map[string][]version // by key
}

// selection is what makes two requests ask about the same world. A namespace or a name is a prefix
// of keys in it, as in etcd.
type selection struct {
	resource, labels, fields string
	metadata, lean, quiet    bool
	half                     int // 0 for both
}

// version is one version of an object in a world.
type version struct {
	rv     int64
	value  string // digest; "" if the object is absent
	number int64  // how often it was written since it was created
}

// elsewhere is the key of all that a world does not show.
const elsewhere = "/elsewhere"

func (s scope) selection() selection {
	return selection{s.Resource, s.Labels, s.Fields, s.Metadata, s.Lean, s.Quiet, s.Half}
}

func (s selection) String() string {
	form := "objects"
	if s.metadata {
		form = "metadata"
	}
	if s.lean {
		form = "lean " + form
	}
	if s.quiet {
		form += " in the quiet view"
	}
	if s.half != 0 {
		form = fmt.Sprintf("half %d of %s", s.half, form)
	}
	return fmt.Sprintf("%s of %s with labels %q and fields %q", form, s.resource, s.labels, s.fields)
}

// newWorld tells the history as a selection sees it.
func newWorld(h *history, s selection) (*world, error) {
	byLabels, err := labels.Parse(s.labels)
	if err != nil {
		return nil, err
	}
	byFields, err := fields.ParseSelector(s.fields)
	if err != nil {
		return nil, err
	}
	w := &world{selection: s, versions: make(map[string][]version)}
	match := func(c change) bool {
		namespace, name := c.name()
		return c.full != "" && (s.half == 0 || s.half == c.half) && strings.HasPrefix(c.key, "/"+s.resource+"/") && byLabels.Matches(labels.Set(c.labels)) &&
			byFields.Matches(fields.Set{"metadata.name": name, "metadata.namespace": namespace})
	}
	for _, r := range h.revisions {
		var ops []model.EtcdOperation
		for _, c := range r.changes {
			if op, ok := w.apply(r.rv, c, match(c)); ok {
				ops = append(ops, op)
			}
		}
		if len(ops) == 0 {
			ops = []model.EtcdOperation{put(elsewhere, "")}
		}
		w.requests = append(w.requests, request(ops))
	}
	w.requests = append(w.requests, request([]model.EtcdOperation{put(elsewhere, "")})) // no read is of the last revision
	return w, nil
}

// apply makes a change to the world, and returns it as an operation of etcd if there is anything to
// do.
func (w *world) apply(rv int64, c change, selected bool) (op model.EtcdOperation, changed bool) {
	old := w.version(c.key, rv)
	value := c.value(w.selection)
	switch {
	case selected && w.quiet && value == old.value:
	case selected:
		w.versions[c.key] = append(w.versions[c.key], version{rv, value, old.number + 1})
		return put(c.key, value), true
	case old.value != "":
		w.versions[c.key] = append(w.versions[c.key], version{rv: rv})
		return model.EtcdOperation{Type: model.DeleteOperation, Delete: model.DeleteOptions{Key: c.key}}, true
	}
	return op, false
}

// version returns the version of an object as of rv. One that was never there has no value.
func (w *world) version(key string, rv int64) version {
	versions := w.versions[key]
	i, found := slices.BinarySearchFunc(versions, rv, func(v version, rv int64) int { return cmp.Compare(v.rv, rv) })
	switch {
	case found:
		return versions[i]
	case i == 0:
		return version{}
	}
	return versions[i-1]
}

// absence returns the first revision at or behind rv at which an object is absent, and if there is
// none, the last one before it.
func (w *world) absence(key string, rv int64) int64 {
	if w.version(key, rv).value == "" {
		return rv
	}
	before := int64(1)
	for i, v := range w.versions[key] {
		switch {
		case v.rv > rv && v.value == "":
			return v.rv
		case v.rv <= rv && v.value != "" && (i == 0 || w.versions[key][i-1].value == ""):
			before = v.rv - 1
		}
	}
	return before
}

// stored is an object that a client was shown, as etcd would return it. No client is told how often
// it was written: that comes from the history, if the history has this version. In the quiet view it is the
// latest version of which something is shown.
func (w *world) stored(o shown) model.KeyValue {
	kv := model.KeyValue{Key: "/" + w.resource + "/" + o.Key}
	kv.Value, kv.ModRevision = model.ValueOrHash{Value: o.Value}, o.RV
	if v := w.version(kv.Key, o.RV); v.rv == o.RV || w.quiet && v.value != "" {
		kv.ModRevision, kv.Version = v.rv, v.number
	}
	return kv
}

func put(key, value string) model.EtcdOperation {
	return model.EtcdOperation{Type: model.PutOperation,
		Put: model.PutOptions{Key: key, Value: model.ValueOrHash{Value: value}}}
}

func request(ops []model.EtcdOperation) model.EtcdRequest {
	return model.EtcdRequest{Type: model.Txn, Txn: &model.TxnRequest{OperationsOnSuccess: ops}}
}

// written is etcd's answer to a request of the history.
func written(r model.EtcdRequest, rv int64) model.MaybeEtcdResponse {
	results := make([]model.EtcdOperationResult, len(r.Txn.OperationsOnSuccess))
	for i, op := range r.Txn.OperationsOnSuccess {
		if op.Type == model.DeleteOperation {
			results[i].Deleted = 1
		}
	}
	return model.MaybeEtcdResponse{EtcdResponse: model.EtcdResponse{
		Txn: &model.TxnResponse{Results: results}, Revision: rv}}
}
