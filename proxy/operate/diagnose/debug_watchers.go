package diagnose

import (
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/pass/passthrough"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/store/watchers"
)

const WatchersPath = "/debug/watchers"

// patience is how long a page waits for a shard to describe its watches.
const patience = 2 * time.Second

// WatchersPage answers /debug/watchers and /debug/watchers/{id}.
type WatchersPage struct {
	watchers *watchers.Register
	flusher  *fanout.Flusher // its shards know the state of each watch
	upstream func() error    // the readiness check of kube-apiserver
	passed   *passthrough.Watches

	// looking is held while watches are inspected. A shard answers one page at a time, however many
	// clients ask.
	looking sync.Mutex
}

func NewWatchersPage(ws *watchers.Register, passed *passthrough.Watches, flusher *fanout.Flusher, upstream func() error) *WatchersPage {
	return &WatchersPage{watchers: ws, passed: passed, flusher: flusher, upstream: upstream}
}

// Serve answers with the watch that has this id, or with a list of watches if id is empty.
func (p *WatchersPage) Serve(w http.ResponseWriter, r *http.Request, id string) {
	w.Header().Set("Cache-Control", "no-cache, private")
	if !onlyReads(w, r, "only GET is served here") {
		return
	}
	q, err := parseWatchersQuery(r, id != "")
	if err != nil {
		WriteText(w, http.StatusBadRequest, err.Error()+"\n")
		return
	}
	if id == "" {
		list := p.list(q)
		respond(w, q.json, list, list.writeText)
		return
	}
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		WriteText(w, http.StatusBadRequest,
			fmt.Sprintf("%.50q is no watch's id: give a number that %s shows\n", id, WatchersPath))
		return
	}
	if status := p.one(n); status != nil {
		respond(w, q.json, status, status.writeText)
		return
	}
	WriteText(w, http.StatusNotFound, fmt.Sprintf("there is no watch %d, or it has ended: see %s\n", n, WatchersPath))
}

// watched is a watch that has been inspected.
type watched struct {
	w   *watchers.Watcher
	e   *watchers.Evidence
	why watchers.Cause
}

// look inspects watches. It leaves out those that have ended. Lanes are sampled before the watches,
// and each only once: see Watcher.Evidence.
func (p *WatchersPage) look(ws []*watchers.Watcher) []watched {
	p.looking.Lock()
	defer p.looking.Unlock()
	subs := make([]*fanout.Subscription, len(ws))
	for i, w := range ws {
		subs[i] = &w.Sub
	}
	unreachable := p.upstream() != nil
	lanes := make(map[*lane.Lane]lane.Health)
	for _, w := range ws {
		if _, ok := lanes[w.Lane]; !ok {
			lanes[w.Lane] = lane.HealthOf(w.Lane, unreachable)
		}
	}
	found := make([]watched, 0, len(ws))
	for i, st := range p.flusher.Inspect(subs, patience) {
		if st.Phase != fanout.Unserved {
			e := ws[i].Evidence(st, lanes[ws[i].Lane])
			found = append(found, watched{ws[i], e, e.Cause()})
		}
	}
	return found
}

func (p *WatchersPage) list(q watchersQuery) *WatcherList {
	now := time.Now()
	open := p.watchers.All()
	total := len(open)
	ws := slices.DeleteFunc(open, func(w *watchers.Watcher) bool {
		return !q.matches(askerOf(w), now.Sub(w.Started.Time()))
	})
	found := slices.DeleteFunc(p.look(ws), func(w watched) bool {
		st := &w.e.State
		return st.LagEvents < q.minLagEvents || st.LagBytes < q.minLagBytes ||
			q.reason != "" && string(w.why) != q.reason || q.state != "" && stateName(st) != q.state
	})
	slices.SortFunc(found, func(a, b watched) int { return compareWatched(q.sort, a, b) })
	list := &WatcherList{Total: total, Matching: len(found), Reasons: make(map[watchers.Cause]int), Watchers: []WatcherStatus{}}
	for _, w := range found {
		list.Reasons[w.why]++
	}
	list.Slow = slowCauses(list.Reasons)
	for _, w := range found[:min(len(found), q.limit)] {
		list.Watchers = append(list.Watchers, w.status())
	}
	list.Passed = passedList(p.passed.Open(), q, now)
	return list
}

// one returns the watch that has this id, with its verdict, or nil.
func (p *WatchersPage) one(id uint64) *WatcherStatus {
	ws := slices.DeleteFunc(p.watchers.All(), func(w *watchers.Watcher) bool { return w.ID != id })
	for _, w := range p.look(ws) {
		s, v := w.status(), w.e.Verdict(w.why)
		s.Verdict, s.TCP = &v, w.e.TCP
		return &s
	}
	return nil
}
