package chaos_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"time"
)

// reader gets and lists, and checks the answers with the oracle: a read without a resourceVersion
// is at least as new as any write that was acknowledged before it, and each list is exactly the
// state as of its resourceVersion, which is the one that was asked for if it had to match exactly.
type reader struct {
	suite  *suite
	name   string
	client *client
	rng    *rand.Rand
}

func (r *reader) run(ctx context.Context) {
	defer r.client.close()
	for ctx.Err() == nil {
		f := r.suite.work.filters[r.rng.IntN(len(r.suite.work.filters))]
		var err error
		switch r.rng.IntN(7) {
		case 0, 1:
			err = r.get(ctx, f.resource, "")
		case 2:
			err = r.get(ctx, f.resource, "0")
		case 3:
			err = r.list(ctx, f, "", 0)
		case 4:
			err = r.list(ctx, f, "0", 0)
		case 5:
			err = r.list(ctx, f, "", 5)
		case 6:
			err = r.list(ctx, f, exactly, 0)
		}
		if err != nil && ctx.Err() == nil {
			r.suite.violate(r.name, err, "")
		}
		pause(ctx, time.Duration(50+r.rng.IntN(500))*time.Millisecond)
	}
}

// get gets an object that may or may not exist. It returns an error only for mistakes of the
// server.
func (r *reader) get(ctx context.Context, resource, rv string) error {
	namespace, name := namespaces[r.rng.IntN(len(namespaces))], objectName(r.rng.IntN(writers), r.rng.IntN(r.suite.work.names))
	key := namespace + "/" + name
	query := make(url.Values)
	floor := uint64(0)
	if rv == "" {
		floor = r.suite.acknowledged(resource)
	} else {
		query.Set("resourceVersion", rv)
	}
	as := jsonForm
	if r.client.way.leaps && r.rng.IntN(4) == 0 {
		as = as.dropping()
	}
	shownTo := &scope{Resource: resource, Namespace: namespace, Name: name, Lean: as.lean}
	begin := moment()
	a, err := r.client.read(ctx, collection(resource, namespace)+"/"+name, query, as)
	end := moment()
	if err != nil || a.status != http.StatusOK && a.status != http.StatusNotFound {
		r.suite.counts.unanswered.Add(1)
		return nil
	}
	if err := r.suite.truth.wait(floor); err != nil {
		return err
	}
	if a.status == http.StatusNotFound {
		if resource == "widgets" && !bytesContain(a.body, name) {
			r.suite.counts.unanswered.Add(1) // a starting kube-apiserver does not know the resource yet
			return nil
		}
		r.suite.counts.reads.Add(1)
		r.suite.record.read(r.name, begin, end, shownTo, rv, "", 0, nil)
		if !r.suite.truth.absent(resource, key, floor) {
			return fmt.Errorf("get of %s %s at %q: not found, though it existed at %d and ever since",
				resource, key, rv, floor)
		}
		return nil
	}
	r.suite.counts.reads.Add(1)
	e, err := parseObject(as, "", a.body, a.body)
	if err != nil {
		return err
	}
	r.suite.record.read(r.name, begin, end, shownTo, rv, "", 0, []event{e})
	if err := r.suite.truth.wait(e.rv); err != nil {
		return err
	}
	o, next := r.suite.truth.version(resource, key, e.rv)
	switch {
	case o == nil || o.name == "" || e.key != key:
		return fmt.Errorf("get of %s %s at %q: %s, which never existed", resource, key, rv, e)
	case next != 0 && next <= floor:
		return fmt.Errorf("get of %s %s at %q: %s, which was replaced at %d, and %d had been acknowledged before the request", resource, key, rv, e, next, floor)
	case e.content != o.shown(as.lean && !a.passed).full:
		return fmt.Errorf("get of %s %s at %q as %s: %s is not what etcd has", resource, key, rv, as.accept, e)
	}
	return nil
}

// exactly asks for the state as of the last acknowledged write.
const exactly = "exactly"

// list lists, in pages if limit is not 0.
func (r *reader) list(ctx context.Context, f filter, rv string, limit int) error {
	as := []form{jsonForm, jsonMetaForm}[r.rng.IntN(2)]
	if f.labels.Empty() && f.fields.Empty() && r.client.way.leaps { // each other selection would be one more for the judge
		switch n := r.rng.IntN(6); n {
		case 0:
			as = jsonForm.dropping()
		case 1, 2:
			as, f = jsonForm, f.of(half(n))
		}
	}
	query := make(url.Values)
	f.ask(query)
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	floor := r.suite.acknowledged(f.resource)
	match := ""
	switch {
	case rv == exactly && floor == 0:
		return nil
	case rv == exactly:
		rv, match = strconv.FormatUint(floor, 10), "Exact"
		query.Set("resourceVersionMatch", match)
		query.Set("resourceVersion", rv)
	case rv != "":
		floor = 0
		query.Set("resourceVersion", rv)
	}
	var whole list
	var begin, end int64 // of the first page, which decides of which state the list is
	for pages := 1; ; pages++ {
		asked := moment()
		a, err := r.client.read(ctx, collection(f.resource, f.namespace), query, as.lists())
		if pages == 1 {
			begin, end = asked, moment()
		}
		if err != nil || a.status != http.StatusOK {
			r.suite.counts.unanswered.Add(1) // also 410 for a continue token whose state was compacted
			return nil
		}
		if err := r.suite.kept(f, a.passed, asked); err != nil {
			var wrong *violation
			if !errors.As(err, &wrong) {
				return nil
			}
			return err
		}
		page, err := a.list(as, f)
		if err != nil {
			return err
		}
		if pages > 1 && page.rv != whole.rv {
			return fmt.Errorf("page %d of a list of %s is as of %d, the first is as of %d", pages, f, page.rv, whole.rv)
		}
		if limit > 0 && len(page.items) > limit {
			return fmt.Errorf("page %d of a list of %s has %d items, more than %d", pages, f, len(page.items), limit)
		}
		whole.rv, whole.items = page.rv, append(whole.items, page.items...)
		if page.next == "" {
			break
		}
		query.Set("continue", page.next)
		query.Del("resourceVersion")
		query.Del("resourceVersionMatch")
	}
	r.suite.counts.reads.Add(1)
	r.suite.record.read(r.name, begin, end, f.scope(as), rv, match, whole.rv, whole.items)
	if match != "" && whole.rv != floor {
		return fmt.Errorf("a list of %s at exactly %d is as of %d", f, floor, whole.rv)
	}
	if whole.rv < floor {
		return fmt.Errorf("a list of %s at %q is as of %d, and %d had been acknowledged before the request", f, rv,
			whole.rv, floor)
	}
	if err := r.suite.oracle.state(as, f, whole.items, whole.rv, r.client.way.leaps); err != nil {
		return fmt.Errorf("list of %s at %q, limit %d: %w", f, rv, limit, err)
	}
	return nil
}
