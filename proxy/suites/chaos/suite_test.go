package chaos_test

import (
	"cmp"
	"context"
	"crypto/tls"
	"expvar"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// suite is one run.
type suite struct {
	t         *testing.T
	work      workload
	program   string // watchfan's
	cluster   *proxytest.Cluster
	straight  way // to kube-apiserver
	watchfan  *watchfan
	sibling   *sibling
	observing *watchfan
	replicas  []*watchfan      // all of them
	lies      int              // told so far
	relay     *proxytest.Relay // between watchfan and kube-apiserver
	relayed   string           // kubeconfig that leads to it
	entrance  *proxytest.Relay // between clients over HTTP/2 and watchfan
	link      *link
	noLink    error // why it is impossible here
	modern    bool  // kube-apiserver has watch-lists
	shards    bool  // and serves shardSelector
	truth     *truth
	following *running // the truth
	oracle    *oracle
	record    *record // nil: none is kept
	admin     *client // straight to kube-apiserver
	watchers  []*watcher
	sharing   map[string]*http.Client // over HTTP/2, by server and window

	certFile, keyFile string          // the replicas' certificate
	caFile            string          // of the authority of clients' certificates
	certificate       tls.Certificate // of a user who reads
	clients           tally           // by kind

	gate    sync.RWMutex // is locked while clients stall
	stalled atomic.Int64 // clients that wait for it
	calm    atomic.Bool  // clients no longer leave or read slowly
	quiet   atomic.Int64 // the moment since when there is no fault, and all have recovered; 0 in a fault
	acks    *sync.Map    // resourceVersion → when its write was first acknowledged; nil: nobody asks

	counts tally

	mu         sync.Mutex
	violations []string
	acked      map[string]uint64 // by resource
}

// tally counts by name. Its methods may be called from any goroutine.
type tally struct{ counts expvar.Map }

func (t *tally) add(what string) { t.counts.Add(what, 1) }

func (t *tally) of(what string) int {
	n, _ := t.counts.Get(what).(*expvar.Int)
	return int(cmp.Or(n, new(expvar.Int)).Value())
}

func (t *tally) String() string {
	var b strings.Builder
	t.counts.Do(func(c expvar.KeyValue) { fmt.Fprintf(&b, "  %-46s %8s\n", c.Key, c.Value) })
	return b.String()
}

// workload is what the writers and the clients of a suite do.
type workload struct {
	filters []filter      // of readers
	names   int           // objects of one writer, in each namespace, of each resource
	labels  []labelDrawn  // of the objects
	rate    float64       // writes a second, of all writers; 0: in bursts and with pauses
	lasts   int           // seconds that a watch lasts at least
	longer  int           // and so many at most on top
	pace    time.Duration // between the first requests of two watchers
}

// chaosWork is the workload of TestChaos.
var chaosWork = workload{filters: allFilters, names: 6, labels: fewLabels, lasts: 20, longer: 100}

// allFilters are the filters of TestChaos's clients.
var allFilters = []filter{
	newFilter("configmaps", "", "", ""),
	newFilter("configmaps", "chaos-a", "", ""),
	newFilter("configmaps", "", "app=a", ""),
	newFilter("configmaps", "", "app in (a,b),!tier", ""),
	newFilter("configmaps", "zchaos", "app!=c", ""),
	newFilter("configmaps", "", "tier", ""),
	newFilter("configmaps", "", "", "metadata.name=w1-2"),
	newFilter("configmaps", "chaos-b", "tier=x", "metadata.name!=w0-1"),
	newFilter("widgets", "", "", ""),
	newFilter("widgets", "chaos-b", "", ""),
	newFilter("widgets", "", "app notin (b)", ""),
	newFilter("widgets", "", "", "metadata.name=w2-3"),
}

// acknowledged returns the resourceVersion of the last acknowledged write to a resource. No
// consistent read may miss it from now on.
func (s *suite) acknowledged(resource string) uint64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.acked[resource]
}

func (s *suite) acknowledge(resource string, rv uint64) {
	if s.acks != nil {
		s.acks.LoadOrStore(rv, time.Now())
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.acked[resource] = max(s.acked[resource], rv)
}

// violate notes a mistake of the server, with the client's story.
func (s *suite) violate(who string, err error, story string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	text := fmt.Sprintf("%s: %v", who, err)
	if story != "" {
		text += "\n    " + story
	}
	s.violations = append(s.violations, text)
	if len(s.violations) <= 20 {
		s.t.Errorf("%s after %s: %s", time.Now().Format(time.TimeOnly), time.Since(started).Round(time.Second), text)
	}
}

var started = time.Now()

// pause waits for d, and reports false if ctx has ended. Clients and writers keep their pace by it.
func pause(ctx context.Context, d time.Duration) bool {
	return proxytest.Sleep(ctx, d) //testlint:allow timer a pace, which nothing asserts
}

// await reports whether f returns true, within a time if it does not.
func await(within time.Duration, f func() bool) bool {
	for deadline := time.Now().Add(within); !f(); time.Sleep(20 * time.Millisecond) { //testlint:allow timer f is asked again
		if time.Now().After(deadline) {
			return false
		}
	}
	return true
}

// probe writes to an object that all unfiltered watchers of ConfigMaps follow, and returns its
// resourceVersion. It tries until kube-apiserver accepts the write.
func (s *suite) probe(ctx context.Context, why string) (uint64, error) {
	s.counts.add("probes")
	begin := moment()
	body := fmt.Sprintf(`{"data":{"why":%q,"n":"%d"}}`, why, s.counts.of("probes"))
	for deadline := time.Now().Add(patience); ; pause(ctx, 50*time.Millisecond) {
		answer, err := s.admin.write(ctx, http.MethodPatch, collection("configmaps", "chaos-a")+"/probe", body)
		if err == nil {
			rv, err := versionIn(answer)
			s.record.write("probe", begin, moment(), rv)
			return rv, err
		}
		if time.Now().After(deadline) || ctx.Err() != nil {
			return 0, err
		}
	}
}

// recover waits until every steady watcher without a filter has received a write that was made
// after a fault, and returns how long that took.
func (s *suite) recover() (time.Duration, error) {
	begin := time.Now()
	rv, err := s.probe(context.Background(), "recovered")
	if err != nil {
		return 0, err
	}
	late := ""
	if !await(patience, func() bool {
		late = ""
		for _, w := range s.watchers {
			if f := w.cursor.filter; w.manner == steady && w.cursor.leaps && f.resource == "configmaps" &&
				f.half == bothHalves && !f.quiet && f.namespace == "" && f.labels.Empty() && f.fields.Empty() && !w.reached(rv) {
				late = w.name + ", " + w.story()
			}
		}
		return late == ""
	}) {
		return 0, fmt.Errorf("%s has not received a write for %s\nwatchfan's log ends\n%s", late, patience,
			proxytest.Tail(s.watchfan.log, 20))
	}
	s.quiet.Store(moment())
	return time.Since(begin), nil
}

// settle waits until every watcher has received everything.
func (s *suite) settle() error {
	var late []string
	if !await(patience, func() bool {
		late = nil
		for _, w := range s.watchers {
			if err := w.settled(); err != nil {
				late = append(late, err.Error())
			}
		}
		return len(late) == 0
	}) {
		return fmt.Errorf("%d watchers have not received everything within %s:\n%s", len(late), patience,
			strings.Join(late[:min(len(late), 10)], "\n"))
	}
	return nil
}

// report counts the faults of a run and the recoveries from them.
type report struct {
	impossible map[string]string
	recovery   map[string][]time.Duration
}

func (r *report) String() string {
	var b strings.Builder
	for _, kind := range slices.Sorted(maps.Keys(r.recovery)) {
		took := slices.Sorted(slices.Values(r.recovery[kind]))
		fmt.Fprintf(&b, "  %-26s %3d   recovered within %.2fs (median), %.2fs (most)\n", kind, len(took),
			took[(len(took)-1)/2].Seconds(), took[len(took)-1].Seconds())
	}
	for _, kind := range slices.Sorted(maps.Keys(r.impossible)) {
		fmt.Fprintf(&b, "  %-26s   0   IMPOSSIBLE HERE: %s\n", kind, r.impossible[kind])
	}
	return b.String()
}
