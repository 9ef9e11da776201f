package attack_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strings"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// The operations of honest clients that are measured. Those in cachedOperations are answered from
// watchfan's memory.
const (
	eventOperation          = "event" // from its acknowledgement to its end in the client
	getOperation            = "get rv=0"
	listOperation           = "list rv=0"
	consistentGetOperation  = "consistent get"
	consistentListOperation = "consistent list"
	largeWriteOperation     = "write of 200 KB"
	watchOperation          = "watch" // until its head
	updateOperation         = "update at kube-apiserver"
)

var cachedOperations = []string{eventOperation, getOperation, listOperation}

// honest is an honest client.
type honest struct {
	suite  *suite
	name   string
	client *client
	rng    *rand.Rand
}

// ask sends a request, and again after each 429 that says when to come back. It notes how long all
// that took, or how it failed.
func (h *honest) ask(ctx context.Context, operation string, r request) (body []byte, ok bool) {
	phase, begun := h.suite.phase.Load(), time.Now()
	for range 5 {
		code, header, body, err := h.client.send(ctx, r)
		switch {
		case ctx.Err() != nil:
			return nil, false
		case err == nil && code < 300:
			phase.measured(operation, time.Since(begun))
			h.look(body, r.uri)
			return body, true
		}
		phase.failed(operation, fault(code, header, err),
			fmt.Sprintf("%s: %.120s: %v %.150q", h.name, r.uri, err, body))
		if wait, ok := retryAfter(header); code != http.StatusTooManyRequests || !ok || !proxytest.Sleep(ctx, wait) {
			return nil, false
		}
	}
	return nil, false
}

// wrong notes an error, if it is one, that only a mistake of the server causes.
func (h *honest) wrong(err error) error {
	if err != nil {
		h.suite.violate(fmt.Errorf("%s: %w", h.name, err))
	}
	return err
}

// look looks for objects that the client may not see.
func (h *honest) look(b []byte, where string) error {
	if other := foreign(b, h.client.way.tenant); other != "" && h.client.way.tenant != "" {
		return h.wrong(fmt.Errorf("%s shows an object of %s", where, other))
	}
	return nil
}

// list begins f with a list, which is consistent or of any age, and returns its resourceVersion.
func (h *honest) list(ctx context.Context, f *follower, consistent bool) (rv string, err error) {
	uri, operation, floor := f.scope.uri()+"?"+f.scope.selectors(), consistentListOperation, f.floor()
	if !consistent {
		uri, operation, floor = uri+"resourceVersion=0", listOperation, nil
	}
	body, ok := h.ask(ctx, operation, request{method: http.MethodGet, uri: uri, accept: "application/json"})
	if !ok {
		return "", errors.New("no list")
	}
	state, rv, err := parseList(body)
	if err == nil {
		err = f.begin(state, floor)
	}
	return rv, h.wrong(err)
}

// watcher follows a collection.
type watcher struct {
	honest
	*follower
	protobuf, gzip bool
	relists        bool // as an informer that restarts again and again: it begins with a list of any age
	rv             string
}

const protobufType = "application/vnd.kubernetes.protobuf"

// run follows the collection until ctx ends.
func (w *watcher) run(ctx context.Context) {
	defer w.client.close()
	for ctx.Err() == nil {
		if err := w.once(ctx); err != nil && ctx.Err() == nil {
			w.forget()
			w.rv = ""
			proxytest.Sleep(ctx, time.Duration(100+w.rng.IntN(400))*time.Millisecond)
		}
	}
}

// once lists, if it has to, and watches until the stream ends. Watchers of protobuf ask for initial
// events instead of a list.
func (w *watcher) once(ctx context.Context) error {
	seconds := 20 + w.rng.IntN(40)
	query := fmt.Sprintf("watch=true&allowWatchBookmarks=true&%stimeoutSeconds=%d", w.scope.selectors(), seconds)
	var floor map[int]uint64
	var err error
	switch {
	case w.protobuf:
		w.forget()
		floor = w.floor()
		query += "&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"
	case w.rv == "" || w.relists:
		if w.rv, err = w.list(ctx, w.follower, !w.relists); err != nil { // an informer's list may be of any age
			return err
		}
		fallthrough
	default:
		query += "&resourceVersion=" + w.rv
	}
	ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds)*time.Second+patience)
	defer cancel()
	begun := time.Now()
	body, err := w.open(ctx, query)
	if err != nil {
		return err
	}
	defer body.Close()
	err = w.read(body, floor)
	if (err != io.EOF || time.Since(begun) < time.Duration(seconds-1)*time.Second) && ctx.Err() == nil {
		w.suite.phase.Load().failed(watchOperation, "ended early",
			fmt.Sprintf("%s: after %s of %d s: %v", w.name, time.Since(begun), seconds, err))
	}
	if err == io.EOF {
		return nil
	}
	return err
}

// open opens the watch.
func (w *watcher) open(ctx context.Context, query string) (io.ReadCloser, error) {
	r := request{method: http.MethodGet, uri: w.scope.uri() + "?" + query, accept: "application/json", gzip: w.gzip}
	if w.protobuf {
		r.accept = protobufType + ";stream=watch"
	}
	phase, begun := w.suite.phase.Load(), time.Now()
	resp, err := w.client.open(ctx, r)
	if err != nil {
		if ctx.Err() == nil {
			phase.failed(watchOperation, fault(0, nil, err), fmt.Sprintf("%s: %v", w.name, err))
		}
		return nil, err
	}
	if resp.StatusCode != http.StatusOK {
		defer resp.Body.Close()
		phase.failed(watchOperation, fault(resp.StatusCode, resp.Header, nil), w.name)
		if wait, ok := retryAfter(resp.Header); ok {
			proxytest.Sleep(ctx, wait)
		}
		return nil, fmt.Errorf("%d", resp.StatusCode)
	}
	phase.measured(watchOperation, time.Since(begun))
	return proxytest.Uncompressed(resp), nil
}

// read takes the events of one stream. If floor is not nil, the stream begins with initial events.
func (w *watcher) read(body io.Reader, floor map[int]uint64) error {
	var initial []beat
	in := proxytest.NewEventReader(body, w.protobuf)
	for synced := floor == nil; ; {
		content, err := in.Next()
		if err != nil {
			return err
		}
		e, err := parseEvent(content, w.protobuf)
		if err != nil {
			return err
		}
		if err := w.look(e.raw, "an event"); err != nil {
			return err
		}
		switch {
		case e.typ == "ERROR":
			return fmt.Errorf("ERROR event: %.200q", e.raw)
		case e.end:
			synced = true
			err = w.begin(initial, floor)
		case e.typ == "BOOKMARK":
		case len(e.beats) == 0:
		case !synced:
			initial = append(initial, e.beats[0])
		default:
			w.suite.phase.Load().measured(eventOperation, w.objects[e.beats[0].object%len(w.objects)].since(e.beats[0].n))
			err = w.take(e.beats[0])
		}
		if w.wrong(err) != nil {
			return err
		}
		w.rv = cmp.Or(e.rv, w.rv)
	}
}

// reader gets and lists, of any age and consistently.
type reader struct {
	honest
	objects []*object
}

func (r *reader) run(ctx context.Context) {
	defer r.client.close()
	for proxytest.Sleep(ctx, time.Duration(500+r.rng.IntN(1000))*time.Millisecond) {
		o := r.objects[r.rng.IntN(len(r.objects))]
		if tenant := r.client.way.tenant; tenant != "" {
			for o.tenant != tenant {
				o = r.objects[r.rng.IntN(len(r.objects))]
			}
		}
		f := &follower{scope: scope{tenant: o.tenant, resource: o.resource, gold: o.gold && r.rng.IntN(2) == 0}, objects: r.objects}
		switch n := r.rng.IntN(10); {
		case n < 4:
			r.get(ctx, o, getOperation, "?resourceVersion=0", 0)
		case n < 5:
			r.get(ctx, o, consistentGetOperation, "", o.acknowledged())
		default:
			_, _ = r.list(ctx, f, n >= 8) // what is wrong has been noted
		}
	}
}

func (r *reader) get(ctx context.Context, o *object, operation, query string, floor uint64) {
	uri := scope{tenant: o.tenant, resource: o.resource}.uri() + "/" + o.name + query
	body, ok := r.ask(ctx, operation, request{method: http.MethodGet, uri: uri, accept: "application/json"})
	switch b := beatsIn(body, 1); {
	case !ok:
	case len(b) == 0 || b[0].object != o.index:
		_ = r.wrong(fmt.Errorf("%s is not the object: %.200s", uri, body))
	case b[0].n < floor:
		_ = r.wrong(fmt.Errorf("stale: %s is as of update %d, and %d had been acknowledged before the request", uri, b[0].n, floor))
	}
}

// largeWriter sends bodies of 200 KB, which are passed through. kube-apiserver does everything with
// them except storing.
type largeWriter struct{ honest }

var largeBody = fmt.Sprintf(`{"data":{"large":%q}}`, strings.Repeat("x", 200<<10))

func (w *largeWriter) run(ctx context.Context) {
	defer w.client.close()
	uri := "/api/v1/namespaces/" + cmp.Or(w.client.way.tenant, tenantName(0)) + "/configmaps/large?dryRun=All"
	for proxytest.Sleep(ctx, time.Duration(2000+w.rng.IntN(4000))*time.Millisecond) {
		w.ask(ctx, largeWriteOperation, request{method: http.MethodPatch, uri: uri, accept: "application/json",
			contentType: "application/merge-patch+json", body: largeBody})
	}
}
