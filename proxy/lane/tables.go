package lane

import (
	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/request"
)

// mostTableEvents bounds the history of a lane of Tables. Clients are sent only what is new of it,
// because rows have ages. Older events are fetched again; see Lane.Backfill.
const mostTableEvents = 1024

// newCache returns the cache for a representation. A lane of Tables keeps events only.
func (ls *Lanes) newCache(rep request.Representation) *fanout.Cache {
	if rep.Table == "" {
		return fanout.NewCache(ls.limits, ls.flusher)
	}
	limits := ls.limits
	limits.HistoryEvents = min(limits.HistoryEvents, mostTableEvents)
	return fanout.NewEventsOnly(limits, ls.flusher)
}
