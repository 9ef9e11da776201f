package lane

import (
	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/store/reflector"
)

// A lane of Tables keeps events and no objects: see [fanout.NewEventsOnly]. So it can tell by an
// event alone to which clients the event belongs only if they select by namespace and name. Those
// share the lane of the resource. Any other selector has a lane of its own, whose upstream watch has
// that selector: kube-apiserver knows the object's previous version, and makes the row that says
// that it has left the selector. Such a lane costs kube-apiserver what a passed-through watch costs,
// however many clients share it. It ends with its last client, so clients that come and go with ever
// other selectors leave nothing behind.
const (
	// mostTableEvents and mostTableBytes bound the history of a lane of Tables. Clients are sent
	// only what is new of it, because rows have ages. Older events are fetched again; see
	// Lane.Backfill.
	mostTableEvents = 1024
	mostTableBytes  = 1 << 20
	// mostSelections bounds the lanes with a selection, and mostSelectionsOfOne those of them that count
	// for one source. Other watches pass through. The histories of all these lanes have 256 MiB at
	// most.
	mostSelections      = 256
	mostSelectionsOfOne = mostSelections / 2
)

// newCache returns the cache for a representation.
func (ls *Lanes) newCache(rep request.Representation) *fanout.Cache {
	limits := ls.cfg.Options.limits()
	if rep.Table == "" {
		return fanout.NewCache(limits, ls.cfg.Flusher)
	}
	limits.HistoryEvents = min(limits.HistoryEvents, mostTableEvents)
	limits.HistoryBytes = min(limits.HistoryBytes, mostTableBytes)
	return fanout.NewEventsOnly(limits, ls.cfg.Flusher)
}

// selects reports whether the lane has only a part of the resource.
func (k Key) selects() bool { return k.Selection != reflector.Selection{} }
