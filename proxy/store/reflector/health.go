package reflector

import (
	"sync"
	"time"

	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/store/seed"
)

// Status says how a reflector is doing. The time of an event that has not happened is zero.
// Counters count from the beginning of the reflector.
type Status struct {
	WatchBegan  time.Time // when the current or last upstream watch began
	BrokenSince time.Time // since when a filled cache has no watch; zero while it has one
	LastHeard   time.Time // when the watch last brought anything, or began
	LastChange  time.Time // when the watch last brought a change
	LastBreak   *Break    // nil for never
	Filled      *Filled   // how the cache was first filled; nil before that, and in Tables

	WatchList  bool            // upstream is known to serve sendInitialEvents (KEP-3157)
	Build      *upstream.Build // of kube-apiserver, which wrote what the cache was last filled with; nil before that
	KnownWrong bool            // RequireRelist has been called, and the collection has not been listed since
	bookmarked bool            // upstream sends bookmarks, as far as its watches have shown

	Changes uint64 // that upstream has sent
	Breaks  uint64
	Relists uint64
	Resets  uint64
}

// Break says why an upstream watch, or an attempt at one, broke. It does not change.
type Break struct {
	Kind   string    `json:"kind"` // see errorKind
	Time   time.Time `json:"time"`
	Relist bool      `json:"-"` // the collection must be listed again
}

// Filled says how a cache was filled for the first time. It does not change.
type Filled struct {
	Source    string      `json:"source"`              // upstream, sibling or disk
	Address   string      `json:"address,omitempty"`   // of the sibling
	NoSibling seed.Reason `json:"noSibling,omitempty"` // why upstream was asked after siblings had been
	Time      time.Time   `json:"time"`
	Seconds   float64     `json:"seconds"` // since the siblings were first asked, or since the list was requested
	Objects   int         `json:"objects"`
}

// From names the source: kube-apiserver, the sibling's address, or --cache-dir.
func (f *Filled) From() string {
	switch {
	case f.Address != "":
		return "sibling " + f.Address
	case f.Source == fromDisk:
		return "--cache-dir"
	}
	return "kube-apiserver"
}

// health is a Status that any goroutine may read and change. Its counters are metrics.
type health struct {
	mu     sync.Mutex
	status Status
}

// note has f change the status. f must not wait.
func (h *health) note(f func(*Status)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	f(&h.status)
}

// read returns the status without its counters.
func (h *health) read() Status {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.status
}

// Status returns how the reflector is doing. It may be called from any goroutine.
func (r *Reflector) Status() Status {
	s, m := r.health.read(), &r.metrics
	s.Changes, s.Breaks, s.Relists, s.Resets = m.events.Get(), m.breaks.Get(), m.relists.Get(), m.resets.Get()
	return s
}
