package selfcheck

import (
	"time"

	"github.com/watchfan/watchfan/proxy/base/option"
)

// Options says how often lanes are compared with kube-apiserver.
type Options struct {
	// SelfCheckInterval is the longest time between two comparisons of a resource, as long as there
	// is time for all of them. 0 is off.
	SelfCheckInterval time.Duration
}

// leastInterval is the shortest interval.
const leastInterval = time.Second

// AddTo adds the options to a table.
func (o *Options) AddTo(t *option.Table) {
	t.Group("Observability")
	t.Duration(&o.SelfCheckInterval, "self-check-interval", 5*time.Minute, "`DURATION` within which each cache is "+
		"compared with kube-apiserver; a difference is logged, counted, and told to clients; 0 is off", interval)
}

// interval is the check of an interval.
func interval(d time.Duration) string {
	if d == 0 {
		return ""
	}
	return option.Within(leastInterval, 24*time.Hour)(d)
}
