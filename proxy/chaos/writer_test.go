package chaos_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"
)

// writers is how many there are. Each has objects of its own.
const writers = 4

// labelDrawn is a label with the values that writers draw from. "" is no label.
type labelDrawn struct {
	name   string
	values []string
}

var fewLabels = []labelDrawn{{"app", []string{"a", "b", "c", ""}}, {"tier", []string{"x", ""}}}

var namespaces = []string{"chaos-a", "chaos-b", "zchaos"}

func objectName(writer, n int) string { return fmt.Sprintf("w%d-%d", writer, n) }

func bytesContain(body []byte, s string) bool { return bytes.Contains(body, []byte(s)) }

// writer writes straight to kube-apiserver: creates, updates, relabels, deletes, creates again; in
// bursts, steadily, or not at all. A write without an answer may or may not have happened; etcd
// knows.
type writer struct {
	suite  *suite
	number int
	client *client
	rng    *rand.Rand
}

func (w *writer) name() string { return fmt.Sprint("writer ", w.number) }

func (w *writer) run(ctx context.Context) {
	defer w.client.close()
	if w.suite.work.rate > 0 {
		w.runSteadily(ctx)
		return
	}
	for ctx.Err() == nil {
		n, between := 0, time.Duration(0)
		switch w.rng.IntN(5) {
		case 0: // nothing
			pause(ctx, time.Duration(w.rng.Int64N(int64(4*time.Second))))
		case 1: // a burst
			n = 40
		default:
			n, between = 30, 120*time.Millisecond
		}
		for range n {
			if ctx.Err() != nil {
				return
			}
			w.attempt(ctx)
			pause(ctx, between)
		}
	}
}

// runSteadily makes the writer's share of the writes on a schedule, which a slow server does not
// change.
func (w *writer) runSteadily(ctx context.Context) {
	between := time.Duration(writers / w.suite.work.rate * float64(time.Second))
	due := time.Now().Add(between * time.Duration(w.number) / writers)
	for ; pause(ctx, time.Until(due)); due = due.Add(between) {
		w.attempt(ctx)
	}
}

// attempt makes one write, and pauses if it is not acknowledged.
func (w *writer) attempt(ctx context.Context) {
	if err := w.write(ctx); err != nil {
		w.suite.counts.unacknowledged.Add(1)
		pause(ctx, 200*time.Millisecond)
	}
}

// write makes one write. An error says that it was not acknowledged.
func (w *writer) write(ctx context.Context) error {
	resource := "configmaps"
	if w.rng.IntN(4) == 0 {
		resource = "widgets"
	}
	namespace, name := namespaces[w.rng.IntN(len(namespaces))], objectName(w.number, w.rng.IntN(w.suite.work.names))
	uri := collection(resource, namespace)
	kind := w.rng.IntN(100)
	switch o := w.suite.truth.last(resource, namespace+"/"+name); {
	case o == nil || o.name == "":
		return w.send(ctx, http.MethodPost, uri, resource, w.body(resource, name), isNew)
	case kind < 18:
		return w.remove(ctx, resource, namespace, name)
	case kind < 60:
		return w.send(ctx, http.MethodPatch, uri+"/"+name, resource,
			fmt.Sprintf(`{"metadata":{"labels":{%s}}}`, w.labels("null")), isPerhapsOld)
	default:
		field := "data"
		if resource == "widgets" {
			field = "spec"
		}
		return w.send(ctx, http.MethodPatch, uri+"/"+name, resource,
			fmt.Sprintf(`{%q:{"n":"%d <&>é"}}`, field, w.rng.Uint64()), isNew)
	}
}

// labels draws labels that move objects into and out of clients' selections.
func (w *writer) labels(none string) string {
	var parts []string
	for _, l := range w.suite.work.labels {
		value := l.values[w.rng.IntN(len(l.values))]
		switch {
		case value != "":
			parts = append(parts, fmt.Sprintf("%q:%q", l.name, value))
		case none != "":
			parts = append(parts, fmt.Sprintf("%q:%s", l.name, none))
		}
	}
	return strings.Join(parts, ",")
}

func (w *writer) body(resource, name string) string {
	metadata := fmt.Sprintf(`"metadata":{"name":%q,"labels":{%s}}`, name, w.labels(""))
	if resource == "widgets" {
		return fmt.Sprintf(`{"apiVersion":"example.com/v1","kind":"Widget",%s,"spec":{"n":"0"}}`, metadata)
	}
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap",%s,"data":{"pad":%q}}`, metadata,
		strings.Repeat("x", w.rng.IntN(800)))
}

// Whether a write changes the object. kube-apiserver acknowledges one that does not with the
// resourceVersion of an older write.
const (
	isNew        = true
	isPerhapsOld = false
)

func (w *writer) send(ctx context.Context, method, uri, resource, body string, changes bool) error {
	contentType := "application/json"
	if method == http.MethodPatch {
		contentType = "application/merge-patch+json"
	}
	begin := moment()
	status, answer, err := w.client.do(ctx, method, uri, nil, jsonForm.accept, contentType, body)
	end := moment()
	if err != nil {
		return err
	}
	if status >= 300 {
		return fmt.Errorf("%s %s: %d: %.200s", method, uri, status, answer)
	}
	var o struct {
		Metadata struct{ ResourceVersion string }
	}
	if err := json.Unmarshal(answer, &o); err != nil {
		return err
	}
	rv := parseVersion(o.Metadata.ResourceVersion)
	if !changes {
		begin = 0
	}
	w.suite.record.write(w.name(), begin, end, rv)
	w.suite.acknowledge(resource, rv)
	return nil
}

// remove deletes an object. The answer has no resourceVersion, so it comes from etcd.
func (w *writer) remove(ctx context.Context, resource, namespace, name string) error {
	uri := collection(resource, namespace) + "/" + name
	begin := moment()
	status, answer, err := w.client.do(ctx, http.MethodDelete, uri, nil, jsonForm.accept, "", "")
	end := moment()
	if err != nil {
		return err
	}
	if status >= 300 {
		return fmt.Errorf("DELETE %s: %d: %.200s", uri, status, answer)
	}
	var o *object
	if !await(patience, func() bool {
		o = w.suite.truth.last(resource, namespace+"/"+name)
		return o.name == ""
	}) {
		return fmt.Errorf("%s has been deleted, and is still in etcd", uri)
	}
	w.suite.record.write(w.name(), begin, end, o.rv)
	w.suite.acknowledge(resource, o.rv)
	return nil
}
