package proxy

import (
	"time"
)

// laneHealth is how a lane is doing.
type laneHealth struct {
	resource    string
	brokenSince time.Time // zero while there is a watch upstream
	heard       time.Time // when the upstream watch last brought anything
	lastChange  time.Time // zero for never
	unreachable bool      // kube-apiserver fails its readiness check
	noBookmarks bool      // upstream has no bookmarks for the resource
}

// healthOf returns how the lane is doing. unreachable says whether kube-apiserver fails its readiness
// check.
func healthOf(l *lane, unreachable bool) laneHealth {
	return laneHealth{
		resource:    l.resource(),
		brokenSince: l.health.brokenSince.time(),
		heard:       l.health.lastHeard.time(),
		lastChange:  l.health.lastChange.time(),
		unreachable: unreachable,
		noBookmarks: l.uncached(),
	}
}

// changes is how many changes upstream has sent.
func (l *lane) changes() uint64 { return l.metrics.events.Get() }
