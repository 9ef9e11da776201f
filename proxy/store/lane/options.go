package lane

import (
	"regexp"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/base/option"
)

// MaxFlushInterval is the longest time that events may wait to leave together. The verdict on a
// watch counts longer waits as slowness (package diagnose).
const MaxFlushInterval = 100 * time.Millisecond

const (
	// mostBookmarkInterval is kube-apiserver's interval. Clients resume from bookmarks, so rarer ones
	// would cost them their place in the history.
	mostBookmarkInterval = time.Minute
	// leastBookmarkInterval keeps bookmarks, each a write to each watch, below the cost of events.
	leastBookmarkInterval = 5 * time.Second
)

// aggregatedName is how --cache-aggregated-groups names a group, or one version of it.
var aggregatedName = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)*(/[a-z0-9-]+)?$`)

// Options says what lanes keep and for how long, and how they serve their watches.
type Options struct {
	// CacheAggregatedGroups are the API groups, or GROUP/VERSION, that may be cached although an
	// aggregated API server answers for them, because it shows all users who may read a resource
	// the same.
	CacheAggregatedGroups []string
	// IdleTimeout is how long a resource is still watched upstream after its last client.
	IdleTimeout time.Duration
	// FreshnessTimeout is how long a request waits for state as new as it asks for. The default is
	// kube-apiserver's.
	FreshnessTimeout time.Duration

	// HistoryFrames and HistoryBytes bound the past events kept for each resource.
	HistoryFrames int
	HistoryBytes  int64

	// CompressWatches serves watches as gzip to clients that accept it, compressed once for all of
	// them.
	CompressWatches bool
	// FlushInterval is the least time between two writes of events to a watch. An event that comes
	// sooner than that after a write waits, and leaves together with others. 0 has each event leave
	// at once. At most MaxFlushInterval.
	FlushInterval time.Duration
	// BookmarkInterval is the time between two bookmarks of a watch. The default is kube-apiserver's.
	// A shorter one keeps the connection of a quiet watch in use.
	BookmarkInterval time.Duration

	// ClientBufferFrames and ClientBufferBytes are how far one watch may fall behind before it is
	// ended.
	ClientBufferFrames int
	ClientBufferBytes  int64

	// Tuning is what tests change and operators do not.
	Tuning Tuning
}

// Tuning is settings that have no flag.
type Tuning struct {
	// SpareLists keeps large collections from being listed to prove freshness; see prover.
	SpareLists bool
}

// AddTo adds the options to a table.
func (o *Options) AddTo(t *option.Table) {
	t.Group("Caching")
	t.Strings(&o.CacheAggregatedGroups, "cache-aggregated-groups", "`GROUPS` to cache, as example.com or example.com/v1, "+
		"although an aggregated API server answers for them; it must show all users the same",
		option.Like(aggregatedName, "is no API group: give names such as example.com or example.com/v1"))
	t.Duration(&o.IdleTimeout, "idle-timeout", 10*time.Minute,
		"`DURATION` for which a resource stays watched upstream after its last client", option.NotNegative)
	t.Duration(&o.FreshnessTimeout, "freshness-timeout", 3*time.Second,
		"`DURATION` for which a request waits for state as new as it asks for", option.Positive)
	t.Bool(&o.CompressWatches, "compress-watches", true,
		"serve watches as gzip to clients that accept it, compressed once for all of them")
	t.Duration(&o.FlushInterval, "flush-interval", 0, "least `DURATION` between two writes of events to a watch; "+
		"saves CPU under load, costs latency; 0s writes each event at once", option.Within(0, MaxFlushInterval))
	// kube-apiserver: defaultUpperBoundCapacity in storage/cacher/watch_cache_history.go
	t.Int(&o.HistoryFrames, "history-frames", 102400,
		"past `EVENTS` kept for each resource, for watches to resume from", option.AtLeast(1))
	t.Size(&o.HistoryBytes, "history-bytes", 64<<20,
		"most `BYTES` of past events kept for each resource, as 64Mi", option.AtLeast[int64](1<<20))

	t.Group("Connections")
	t.Duration(&o.BookmarkInterval, "bookmark-interval", mostBookmarkInterval, "`DURATION` between two bookmarks of a watch; "+
		"less than a minute helps clients behind load balancers that cut silent connections",
		option.Within(leastBookmarkInterval, mostBookmarkInterval))

	t.Group("Limits")
	t.Int(&o.ClientBufferFrames, "client-buffer-frames", 4096,
		"`EVENTS` that one watch may fall behind before it ends", option.AtLeast(1))
	t.Size(&o.ClientBufferBytes, "client-buffer-bytes", 32<<20,
		"`BYTES` that one watch may fall behind before it ends, as 32Mi", option.AtLeast[int64](1<<20))
}

// limits are the bounds of each lane's cache.
func (o *Options) limits() fanout.Limits {
	return fanout.Limits{
		HistoryEvents: o.HistoryFrames,
		HistoryBytes:  o.HistoryBytes,
		ClientFrames:  o.ClientBufferFrames,
		ClientBytes:   o.ClientBufferBytes,
		BookmarkEvery: o.BookmarkInterval,
	}
}
