package diagnose

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/valyala/fasthttp"

	"github.com/watchfan/watchfan/fanout"
)

const WatchersPath = "/debug/watchers"

// patience is how long a shard may take to describe its watches.
const patience = 2 * time.Second

// WatchersPage answers /debug/watchers and /debug/watchers/{id}.
type WatchersPage struct {
	watchers *Watchers
	flusher  *fanout.Flusher // whose shards know how the watches stand
	upstream func() error    // the readiness check of kube-apiserver

	// looking is held while watches are looked at: however many clients ask, each shard has one
	// question at a time.
	looking sync.Mutex
}

func NewWatchersPage(ws *Watchers, flusher *fanout.Flusher, upstream func() error) *WatchersPage {
	return &WatchersPage{watchers: ws, flusher: flusher, upstream: upstream}
}

// Serve answers with the watch that id names, or with the list of all if id is empty.
func (p *WatchersPage) Serve(ctx *fasthttp.RequestCtx, id string) {
	ctx.Response.Header.Set("Cache-Control", "no-cache, private")
	if !ctx.IsGet() && !ctx.IsHead() {
		WriteText(ctx, http.StatusMethodNotAllowed, "only GET is served here\n")
		return
	}
	q, err := parseWatchersQuery(ctx, id != "")
	if err != nil {
		WriteText(ctx, http.StatusBadRequest, err.Error()+"\n")
		return
	}
	if id == "" {
		list := p.list(q)
		respond(ctx, q.json, list, list.writeText)
		return
	}
	n, err := strconv.ParseUint(id, 10, 64)
	if err != nil {
		WriteText(ctx, http.StatusBadRequest, fmt.Sprintf("%.50q is no watch's id: give a number that %s shows\n", id, WatchersPath))
		return
	}
	if w := p.one(n); w != nil {
		respond(ctx, q.json, w, w.writeText)
		return
	}
	WriteText(ctx, http.StatusNotFound, fmt.Sprintf("there is no watch %d, or no longer: see %s\n", n, WatchersPath))
}

// watched is a watch that has been looked at.
type watched struct {
	w   *Watcher
	e   *Evidence
	why Cause
}

// look looks at watches, and leaves out those that have ended.
func (p *WatchersPage) look(ws []*Watcher) []watched {
	p.looking.Lock()
	defer p.looking.Unlock()
	subs := make([]*fanout.Subscription, len(ws))
	for i, w := range ws {
		subs[i] = w.Sub
	}
	unreachable := p.upstream() != nil
	found := make([]watched, 0, len(ws))
	for i, st := range p.flusher.Inspect(subs, patience) {
		if st.Phase != fanout.Unserved {
			e := ws[i].Evidence(st, unreachable)
			found = append(found, watched{ws[i], e, e.cause()})
		}
	}
	return found
}

func (p *WatchersPage) list(q watchersQuery) *WatcherList {
	now := time.Now()
	ws, total := p.watchers.Selected(func(w *Watcher) bool { return q.matches(w, now) })
	found := slices.DeleteFunc(p.look(ws), func(w watched) bool {
		st := &w.e.state
		return st.LagEvents < q.minLagEvents || st.LagBytes < q.minLagBytes ||
			q.reason != "" && string(w.why) != q.reason || q.state != "" && stateName(st) != q.state
	})
	slices.SortFunc(found, func(a, b watched) int { return cmp.Or(compareWatched(q.sort, a, b), cmp.Compare(a.w.id, b.w.id)) })
	list := &WatcherList{Total: total, Matching: len(found), Reasons: make(map[Cause]int), Watchers: []WatcherStatus{}}
	for _, w := range found {
		list.Reasons[w.why]++
	}
	for _, w := range found[:min(len(found), q.limit)] {
		list.Watchers = append(list.Watchers, w.status())
	}
	return list
}

// one returns nil if there is no such watch.
func (p *WatchersPage) one(id uint64) *WatcherStatus {
	ws, _ := p.watchers.Selected(func(w *Watcher) bool { return w.id == id })
	for _, w := range p.look(ws) {
		s, v := w.status(), w.e.verdict(w.why)
		s.Verdict, s.TCP = &v, w.e.tcp
		return &s
	}
	return nil
}
