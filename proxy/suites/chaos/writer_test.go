package chaos_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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

// writer writes straight to kube-apiserver: creates, updates, relabels, deletes, creates again; in
// bursts, steadily, or not at all. A write without an answer may or may not have happened; etcd
// knows.
type writer struct {
	suite  *suite
	number int
	client *client
	rng    *rand.Rand
}

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
		w.suite.counts.add("writes not acknowledged")
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
	uri, key := collection(resource, namespace), namespace+"/"+name
	field := map[string]string{"configmaps": "data", "widgets": "spec"}[resource]
	method, body, changes := http.MethodPatch, fmt.Sprintf(`{%q:{"n":"%d <&>é"}}`, field, w.rng.Uint64()), true
	o := w.suite.truth.last(resource, key)
	switch kind := w.rng.IntN(100); {
	case o == nil || o.name == "":
		method, body = http.MethodPost, w.body(resource, name)
	case kind < 18:
		method, body = http.MethodDelete, ""
	case kind < 60: // perhaps they are as they were, and the answer is an older write's
		body, changes = fmt.Sprintf(`{"metadata":{"labels":{%s}}}`, w.labels("null")), false
	}
	if method != http.MethodPost {
		uri += "/" + name
	}
	begin := moment()
	answer, err := w.client.write(ctx, method, uri, body)
	end := moment()
	if err != nil {
		return err
	}
	rv, err := versionIn(answer)
	if method == http.MethodDelete { // the answer has no resourceVersion, so it comes from etcd
		if !await(patience, func() bool { o = w.suite.truth.last(resource, key); return o.name == "" }) {
			return fmt.Errorf("%s has been deleted, and is still in etcd", uri)
		}
		rv, err = o.rv, nil
	}
	if !changes {
		begin = 0
	}
	w.suite.record.write(fmt.Sprint("writer ", w.number), begin, end, rv)
	w.suite.acknowledge(resource, rv)
	return err
}

// versionIn returns the resourceVersion of an object.
func versionIn(content []byte) (uint64, error) {
	var o metav1.PartialObjectMetadata
	err := json.Unmarshal(content, &o)
	return parseVersion(o.ResourceVersion), err
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
