package fresh

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/reflector"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// modelTick is how often model offers a bookmark to its watches. Kube-apiserver's ticks are 1 to
// 1.25 s apart.
const modelTick = 1100 * time.Millisecond

// model is a kube-apiserver with pods and without a network. It answers as kube-apiserver 1.36
// does: its bookmarks come with its ticks, and a watch of 3 s gets those that are due (type
// cacheWatcher in k8s.io/apiserver/pkg/storage/cacher). It runs in a synctest bubble.
type model struct {
	rng     *rand.Rand
	started time.Time
	faults  bool // watches are late, break, or bring nothing; lists are late

	mu      sync.Mutex
	rv      uint64
	objects map[string]uint64 // the resourceVersions of the pods
	events  []modelEvent
	states  map[uint64]map[string]uint64 // by the resourceVersion of each change

	lists, answers atomic.Int64 // how long a list takes, and a question, in nanoseconds

	// When the current resourceVersion, a list, one of a part, and a watch were requested.
	asked, listed, listedParts, watched times

	open, mostOpen atomic.Int64 // watches
}

// times is when something happened; guarded by model.mu.
type times []time.Time

// read returns when something has happened.
func (m *model) read(x *times) times {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Clone(*x)
}

type modelEvent struct {
	kind, name string
	rv         uint64
}

func newModel(t *testing.T) *model {
	return &model{
		rng:     steady.Rand(t),
		started: time.Now(), rv: 10, objects: make(map[string]uint64), states: map[uint64]map[string]uint64{0: nil},
	}
}

func (e modelEvent) line(pad string) string {
	return fmt.Sprintf(`{"type":%q,"object":{"kind":"Pod","apiVersion":"v1","metadata":{"name":%q,"namespace":"ns","uid":"u",`+
		`"resourceVersion":"%d","annotations":{"pad":%q}}}}`+"\n", e.kind, e.name, e.rv, pad)
}

// put writes a pod. remove deletes it.
func (m *model) put(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rv++
	e := modelEvent{"ADDED", name, m.rv}
	if _, ok := m.objects[name]; ok {
		e.kind = "MODIFIED"
	}
	m.objects[name] = m.rv
	m.noteLocked(e)
}

func (m *model) remove(name string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if _, ok := m.objects[name]; !ok {
		return
	}
	m.rv++
	delete(m.objects, name)
	m.noteLocked(modelEvent{"DELETED", name, m.rv})
}

func (m *model) noteLocked(e modelEvent) {
	m.events = append(m.events, e)
	m.states[m.rv] = maps.Clone(m.objects)
}

// bump is a write to another resource. It returns the resourceVersion.
func (m *model) bump() uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.rv++
	return m.rv
}

// at returns the resourceVersions of the pods as of rv, by key.
func (m *model) at(rv uint64) map[string]uint64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	for m.states[rv] == nil && rv > 0 {
		rv--
	}
	versions := make(map[string]uint64)
	for name, version := range m.states[rv] {
		versions["ns/"+name] = version
	}
	return versions
}

// upTo draws a duration below d.
func (m *model) upTo(d time.Duration) time.Duration { return time.Duration(m.rng.Int64N(int64(d))) }

// lag waits for up to d, if there are faults.
func (m *model) lag(ctx context.Context, d time.Duration) {
	if m.faults {
		exchange.Sleep(ctx, m.upTo(d))
	}
}

func (m *model) URL(path, query string) *url.URL {
	return &url.URL{Scheme: "https", Host: "upstream", Path: path, RawQuery: query}
}

func (m *model) DoAs(_ auth.Identity, req *http.Request) (*http.Response, error) {
	q, ctx := req.URL.Query(), req.Context()
	if q.Get("watch") != "" {
		from, _ := strconv.ParseUint(q.Get("resourceVersion"), 10, 64)
		body, w := io.Pipe()
		go m.watch(ctx, from, w)
		return modelAnswer(body), nil
	}
	m.lag(ctx, 20*time.Millisecond)
	var items []string
	takes := 2 * time.Millisecond
	m.mu.Lock()
	rv := m.rv
	if strings.Contains(req.URL.Path, "/namespaces/-/") {
		m.asked = append(m.asked, time.Now())
		takes = max(takes, time.Duration(m.answers.Load()))
	} else {
		takes = max(takes, time.Duration(m.lists.Load()))
		m.listed = append(m.listed, time.Now())
		if q.Get("fieldSelector") != "" {
			m.listedParts = append(m.listedParts, time.Now())
		}
		only, part := strings.CutPrefix(q.Get("fieldSelector"), "metadata.name=")
		for name, version := range m.objects {
			if part && name != only {
				continue
			}
			items = append(items, fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"ns","uid":"u","resourceVersion":"%d"}}`, name, version))
		}
	}
	m.mu.Unlock()
	exchange.Sleep(ctx, takes)
	m.lag(ctx, 200*time.Millisecond)
	if m.faults && m.rng.IntN(20) == 0 {
		return nil, errors.New("connection reset")
	}
	list := fmt.Sprintf(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"%d"},"items":[%s]}`,
		rv, strings.Join(items, ","))
	return modelAnswer(io.NopCloser(strings.NewReader(list))), ctx.Err()
}

func modelAnswer(body io.ReadCloser) *http.Response {
	return &http.Response{StatusCode: http.StatusOK, Header: http.Header{"Content-Type": {"application/json"}}, Body: body}
}

// watch serves a watch of 3 s: the events behind from, and bookmarks. A bookmark is behind every
// event up to its resourceVersion, and both come late if there are faults.
//
//testlint:allow elapsed models are in bubbles
func (m *model) watch(ctx context.Context, from uint64, w *io.PipeWriter) {
	began, fate := time.Now(), 9
	if m.faults {
		fate = m.rng.IntN(10)
	}
	m.mu.Lock()
	m.watched = append(m.watched, time.Now())
	m.mu.Unlock()
	m.mostOpen.Store(max(m.mostOpen.Load(), m.open.Add(1)))
	defer func() {
		m.open.Add(-1)
		w.CloseWithError(io.EOF)
	}()
	second := func(t time.Time) int { return int(t.Sub(m.started) / time.Second) }
	tick := func(t time.Time) int { return int(t.Sub(m.started) / modelTick) }
	due, seen, sent := second(began.Add(time.Second)), 0, 0
	for last := tick(began); ctx.Err() == nil && time.Since(began) < 3*time.Second; exchange.Sleep(ctx, 5*time.Millisecond) {
		if fate == 0 && time.Since(began) > 700*time.Millisecond {
			return // it breaks off
		}
		bookmark := false
		if now := tick(time.Now()); now != last {
			last = now
			bookmark = second(time.Now()) >= due && (sent == 0 || time.Since(began) < time.Second)
		}
		var lines []string
		m.mu.Lock()
		for ; seen < len(m.events); seen++ {
			if e := m.events[seen]; e.rv > from {
				lines = append(lines, e.line(""))
			}
		}
		if bookmark && fate != 1 { // 1: bookmarks are lost
			sent++
			lines = append(lines, fmt.Sprintf(`{"type":"BOOKMARK","object":{"kind":"Pod","apiVersion":"v1",`+
				`"metadata":{"resourceVersion":"%d"}}}`+"\n", m.rv))
		}
		m.mu.Unlock()
		for _, line := range lines {
			if m.faults && m.rng.IntN(4) == 0 {
				m.lag(ctx, 300*time.Millisecond)
			}
			if _, err := io.WriteString(w, line); err != nil {
				return
			}
		}
	}
}

// modelLane is a cache of a model's pods, and its prover. follow is its own stream.
type modelLane struct {
	p *Prover
	*model
	t        *testing.T
	requests sync.WaitGroup
}

// newModelLane returns a lane with one pod, which is so large that the collection is not listed for
// each question. No question lists anything if spare is true.
func newModelLane(t *testing.T, spare bool) *modelLane {
	m, set := newModel(t), metrics.NewSet()
	source := reflector.NewSource(m, nil, func() bool { return false }, set, proxytest.Guard())
	pods := upstream.ResourceInfo{GVR: schema.GroupVersionResource{Version: "v1", Resource: "pods"}, Namespaced: true}
	r := reflector.New(reflector.Config{
		Collection: source.Collection(pods, request.Representation{}, reflector.Selection{}),
		Cache:      fanout.NewCache(fanout.Limits{}, fanout.NewFlusher(1, 0, fanout.NewMetrics(set))),
		Series:     reflector.Series{Set: set, Labels: `resource="pods"`},
		Log:        proxytest.Guard().Log,
	})
	spawn := func(f func(context.Context)) bool { go f(t.Context()); return true }
	l := &modelLane{t: t, model: m, p: New(r, spawn, spare)}
	m.put("large")
	l.apply(m.events[0], strings.Repeat("x", smallCollection))
	return l
}

// fill gives the lane as many more pods.
func (l *modelLane) fill(n int) {
	for i := range n {
		l.put(fmt.Sprint("still", i))
		l.apply(l.events[len(l.events)-1], "")
	}
}

// needOf returns the need of a read of one pod.
func needOf(name string) Need {
	filter, _ := fanout.NewFilter("", nil, fields.OneTermEqualSelector("metadata.name", name), nil)
	return Need{Selection: reflector.Selection{Fields: "metadata.name=" + name}, Filter: filter}
}

func (l *modelLane) apply(e modelEvent, pad string) {
	ev, err := framing.NewScanner(framing.JSON, nil).Event([]byte(e.line(pad)))
	if err == nil && l.p.Cache.Progress() == 0 {
		_, err = l.p.Cache.Replace([]*framing.Object{ev.Object}, ev.ResourceVersion, time.Now())
	} else if err == nil {
		err = l.p.Cache.Apply(ev, time.Now())
	}
	if err != nil {
		l.t.Error(err)
	}
}

// follow brings the lane the model's events, each up to late after it happened, until ctx ends.
func (l *modelLane) follow(ctx context.Context, late time.Duration) {
	for seen := 1; ctx.Err() == nil; exchange.Sleep(ctx, time.Millisecond) {
		l.mu.Lock()
		news := l.events[seen:]
		seen = len(l.events)
		l.mu.Unlock()
		for _, e := range news {
			if e.rv <= l.p.Cache.Progress() {
				continue // it is there from the start
			}
			exchange.Sleep(ctx, l.upTo(late))
			l.apply(e, "")
		}
	}
}

// prove proves one read behind a write to another resource; see proveFrom.
func (l *modelLane) prove() (took time.Duration, proved bool) { return l.proveFrom(l.bump(), Need{}) }

// proveFrom proves a read, and fails the test if what it shows is older than asked, or was never
// upstream's state. It returns how long that took, and whether it was proved.
func (l *modelLane) proveFrom(asked uint64, need Need) (took time.Duration, proved bool) {
	began := time.Now()
	for {
		proof, err := l.p.Prove(context.Background(), 3*time.Second, need)
		if err != nil {
			return time.Since(began), false
		}
		snapshot, err := l.p.Cache.SnapshotProved(proof)
		if errors.Is(err, fanout.ErrNotFresh) {
			continue
		}
		got := make(map[string]uint64)
		had := l.at(snapshot.ResourceVersion)
		if need.Filter == nil {
			need.Filter = fanout.Everything
		} else {
			maps.DeleteFunc(had, func(key string, _ uint64) bool { return need.Fields != "metadata.name="+key[len("ns/"):] })
		}
		snapshot.Ascend(need.Filter, "", func(o *framing.Object) bool { got[o.Key] = o.ResourceVersion; return true })
		if snapshot.ResourceVersion < asked || !maps.Equal(got, had) {
			l.t.Errorf("a read at %d shows %v as of %d, upstream had %v", asked, got, snapshot.ResourceVersion, had)
		}
		return time.Since(began), true
	}
}
