package reflector

import (
	"time"

	"github.com/watchfan/watchfan/proxy/seed"
)

// Filled says how a cache was filled for the first time. It does not change.
type Filled struct {
	Sibling   string      // address of the replica that sent the objects; "" for a list at upstream
	NoSibling seed.Reason // why no sibling has filled it; "" if one has, or if none was asked
	At        time.Time
	Took      time.Duration // since the siblings were first asked, or since the list was requested
	Objects   int
}

// firstFilled notes that the cache has been filled for the first time, by a sibling or, if its
// address is "", by a list.
func (r *Reflector) firstFilled(sibling string, objects int) {
	now := time.Now()
	f := &Filled{Sibling: sibling, At: now, Took: now.Sub(r.began), Objects: objects}
	if sibling == "" {
		f.NoSibling = r.unseeded
	}
	r.first.Store(f)
}
