package chaos_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
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
		var wrong *violation
		switch {
		case ctx.Err() != nil:
		case errors.As(err, &wrong):
			r.suite.violate(r.name, wrong.err, "")
		case err != nil:
			r.suite.counts.add("reads not answered") // also 410 for a continue token whose state was compacted
		}
		pause(ctx, time.Duration(50+r.rng.IntN(500))*time.Millisecond)
	}
}

// get gets an object that may or may not exist.
func (r *reader) get(ctx context.Context, resource, rv string) error {
	namespace, name := namespaces[r.rng.IntN(len(namespaces))], objectName(r.rng.IntN(writers), r.rng.IntN(r.suite.work.names))
	key := namespace + "/" + name
	query, floor := make(url.Values), r.suite.acknowledged(resource)
	if rv != "" {
		floor = 0
		query.Set("resourceVersion", rv)
	}
	as := jsonForm
	if r.client.way.leaps && r.rng.IntN(4) == 0 {
		as = as.dropping()
	}
	shownTo := &scope{Resource: resource, Namespace: namespace, Name: name, Lean: as.lean}
	begin := moment()
	a, err := r.client.get(ctx, collection(resource, namespace)+"/"+name, query, as)
	end := moment()
	var found []event
	switch {
	case err != nil:
		return err
	case a.status == http.StatusOK:
		e, err := parseObject(as, "", a.body, a.body)
		if err != nil {
			return &violation{err}
		}
		found = []event{e}
	case a.status != http.StatusNotFound || resource == "widgets" && !bytes.Contains(a.body, []byte(name)):
		return fmt.Errorf("%d", a.status) // a starting kube-apiserver does not know the resource yet
	}
	r.suite.counts.add("reads")
	r.suite.record.read(r.name, begin, end, shownTo, rv, "", 0, found)
	if err := r.suite.gotten(resource, key, found, floor, as.lean && !a.passed); err != nil {
		return &violation{fmt.Errorf("get of %s %s at %q as %s: %w", resource, key, rv, as.accept, err)}
	}
	return nil
}

// gotten checks the answer to a get: a version of the object that was not replaced up to floor, or its
// absence if nothing was found.
func (s *suite) gotten(resource, key string, found []event, floor uint64, lean bool) error {
	at, is := floor, func(o *object) bool { return o.name == "" }
	if found != nil {
		at, is = max(floor, found[0].rv), func(o *object) bool { return o.name != "" && o.rv == found[0].rv && key == found[0].key }
	}
	if err := s.truth.wait(at); err != nil {
		return err
	}
	versions := append([]*object{{}}, s.truth.versions(resource, key)...) // absent at first
	for i, o := range slices.Backward(versions) {
		switch {
		case !is(o):
		case i+1 < len(versions) && versions[i+1].rv <= floor:
			return fmt.Errorf("%s was replaced at %d, and %d had been acknowledged before the request", found, versions[i+1].rv, floor)
		case found != nil && found[0].content != o.shown(lean).full:
			return fmt.Errorf("%s is not what etcd has", found)
		default:
			return nil
		}
	}
	return fmt.Errorf("%s never existed", found)
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
	if rv == exactly && r.suite.acknowledged(f.resource) == 0 {
		return nil
	}
	_, err := r.suite.list(ctx, r.name, r.client, f, as, rv, limit)
	return err
}

// list lists for a client, in pages if limit is not 0, and checks the list. Only a mistake of the server
// is a violation.
func (s *suite) list(ctx context.Context, who string, c *client, f filter, as form, rv string, limit int) (whole list, err error) {
	query, floor, match := make(url.Values), s.acknowledged(f.resource), ""
	f.ask(query)
	if limit > 0 {
		query.Set("limit", strconv.Itoa(limit))
	}
	switch {
	case rv == exactly:
		rv, match = strconv.FormatUint(floor, 10), "Exact"
		query.Set("resourceVersionMatch", match)
	case rv != "":
		floor = 0
	}
	if rv != "" {
		query.Set("resourceVersion", rv)
	}
	wrong := func(format string, args ...any) (list, error) {
		return list{}, &violation{fmt.Errorf("a list of %s at %q, limit %d: %w", f, rv, limit, fmt.Errorf(format, args...))}
	}
	var begin, end int64 // of the first page, which decides of which state the list is
	for pages := 1; ; pages++ {
		asked := moment()
		a, err := c.get(ctx, collection(f.resource, f.namespace), query, as.lists())
		if pages == 1 {
			begin, end = asked, moment()
		}
		if err == nil && a.status != http.StatusOK {
			err = fmt.Errorf("%d: %.300s", a.status, a.body)
		}
		if err == nil {
			err = s.kept(f, a.passed, asked)
		}
		if err != nil {
			return list{}, err
		}
		page, err := a.list(as, f)
		switch {
		case err != nil:
			return wrong("%w", err)
		case pages > 1 && page.rv != whole.rv:
			return wrong("page %d is as of %d, the first is as of %d", pages, page.rv, whole.rv)
		case limit > 0 && len(page.items) > limit:
			return wrong("page %d has %d items", pages, len(page.items))
		}
		whole.rv, whole.items = page.rv, append(whole.items, page.items...)
		if page.next == "" {
			break
		}
		query.Set("continue", page.next)
		query.Del("resourceVersion")
		query.Del("resourceVersionMatch")
	}
	s.counts.add("reads")
	s.record.read(who, begin, end, f.scope(as), rv, match, whole.rv, whole.items)
	if whole.rv < floor || match != "" && whole.rv != floor {
		return wrong("it is as of %d, and %d had been acknowledged before the request", whole.rv, floor)
	}
	if err := s.oracle.state(as, f, whole.items, whole.rv, c.way.leaps); err != nil {
		return wrong("%w", err)
	}
	return whole, nil
}
