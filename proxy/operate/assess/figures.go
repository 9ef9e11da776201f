package assess

// Range is an estimate with its spread. The unit is that of its field.
type Range struct {
	Low  float64 `json:"low"`
	Mid  float64 `json:"mid"`
	High float64 `json:"high"`
}

func (r Range) times(n float64) Range { return Range{r.Low * n, r.Mid * n, r.High * n} }

func (r Range) plus(s Range) Range { return Range{r.Low + s.Low, r.Mid + s.Mid, r.High + s.High} }

// atMost returns r without what is above most.
func (r Range) atMost(most float64) Range {
	return Range{min(r.Low, most), min(r.Mid, most), min(r.High, most)}
}

const (
	micro = 1e-6
	kib   = 1 << 10
	mib   = 1 << 20
)

// The figures of bench, on 2 cores of an AMD EPYC over loopback, with TLS. TestFigures compares them
// with bench/README.md, deploy/SIZE.md and bench/results.
var (
	// deliveryCost is the CPU time of an event to one of 1,000 watchers, in seconds. Mid is at 50
	// events/s, less the cost of the writes. Low is when saturated. High is for kube-apiserver an event
	// of twice the size, and for watchfan one of 100 watchers.
	deliveryCost = cost{
		apiserver: Range{8.6 * micro, 17.3 * micro, 26 * micro},
		watchfan:  Range{2.3 * micro, 8.7 * micro, 13 * micro},
	}
	// objectCost is the CPU time of an object that a client is sent at its start, in seconds. Low is a
	// list that is compressed. Mid and High are one that is not and the initial events of a watch; those
	// cost watchfan less.
	objectCost = cost{
		apiserver: Range{142e-3 / 5000, 156e-3 / 5000, 322e-3 / 5000},
		watchfan:  Range{0.96e-3 / 5000, 8e-3 / 5000, 9.36e-3 / 5000},
	}
	// requestCost is the CPU time of a get, in seconds: of one object, at watchfan from the cache. It is that of any
	// request beside its objects.
	requestCost = cost{
		apiserver: Range{213 * micro, 248 * micro, 480 * micro},
		watchfan:  Range{75 * micro, 144 * micro, 243 * micro},
	}
	// watchMemory is the memory of an idle watch, in bytes. High of watchfan is what deploy/SIZE.md
	// reckons with.
	watchMemory = cost{
		apiserver: Range{44 * kib, 74 * kib, 74 * kib},
		watchfan:  Range{14 * kib, 14 * kib, 16 * kib},
	}
	// reviewCost is the CPU time of kube-apiserver for the review of an open watch, in seconds. A review
	// is made each reviewInterval, once for all watches of one token, resource and selector.
	reviewCost = Range{0.68e-3, 0.75e-3, 0.85e-3}
)

// cost is what one thing costs each of the two servers.
type cost struct{ apiserver, watchfan Range }

const (
	// reviewInterval is --authorization-recheck-interval and its spread, in seconds.
	reviewInterval = 63
	// reviewedFor is how long a review of a read counts, in seconds.
	reviewedFor = 10
	// processMemory is that of a watchfan without clients, in bytes. cacheFactor is how many bytes it
	// takes for each byte cached.
	processMemory = 18e6
	cacheFactor   = 1.5
	// The memory that deploy/SIZE.md says to give a replica is
	// garbageFactor × (baseMemory + watches + objects + busyMemory × busy resources).
	garbageFactor = 2
	baseMemory    = 20 * mib
	busyMemory    = 64 * mib
	// representations is how often a replica watches a resource: as JSON and as protobuf.
	representations = 2
)
