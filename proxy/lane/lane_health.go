package lane

import (
	"time"
)

// Health is how a lane is doing.
type Health struct {
	Resource    string
	BrokenSince time.Time // zero while there is a watch upstream
	Heard       time.Time // when the upstream watch last brought anything
	LastChange  time.Time // zero for never
	Unreachable bool      // kube-apiserver fails its readiness check
	NoBookmarks bool      // upstream has no bookmarks for the resource
}

// HealthOf returns how the lane is doing. unreachable says whether kube-apiserver fails its
// readiness check.
func HealthOf(l *Lane, unreachable bool) Health {
	return Health{
		Resource:    l.Resource(),
		BrokenSince: l.Health.brokenSince.time(),
		Heard:       l.Health.lastHeard.time(),
		LastChange:  l.Health.lastChange.time(),
		Unreachable: unreachable,
		NoBookmarks: l.Uncached(),
	}
}

// Changes is how many changes upstream has sent.
func (l *Lane) Changes() uint64 { return l.Metrics.events.Get() }
