package seed

import (
	"fmt"
	"log/slog"
	"sync"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/base/exposition"
)

// Reason is why a lane was not filled from a sibling. It is a log field and a metric label.
type Reason string

const (
	NoSibling    Reason = "no_sibling"    // none is known, or none answers
	Certificate  Reason = "certificate"   // the sibling's certificate is not trusted
	Refused      Reason = "refused"       // the sibling does not let this replica read
	Unfilled     Reason = "unfilled"      // no sibling has the objects
	Unidentified Reason = "unidentified"  // kube-apiserver does not say which cluster this is
	OtherCluster Reason = "other_cluster" // the sibling serves another cluster
	OtherBuild   Reason = "other_build"   // another build of kube-apiserver wrote the sibling's objects
	OtherVersion Reason = "other_version" // the sibling is a watchfan that seeds otherwise, or none
	Unusable     Reason = "unusable"      // the configuration or the files cannot be used
	Slow         Reason = "slow"          // the sibling stopped sending
	Broken       Reason = "broken"        // the sibling broke off, or sent what makes no sense
	TooOld       Reason = "too_old"       // kube-apiserver cannot go on from its resourceVersion
	Ahead        Reason = "ahead"         // kube-apiserver has not reached its resourceVersion

	itself Reason = "itself" // the sibling is this replica, which is no failure
)

// hints say what an operator can do about each reason. The reasons without a warning are usual.
var hints = map[Reason]struct {
	warn bool
	todo string
}{
	NoSibling:    {false, "this is usual for the first replica; otherwise see --seed-from, its name in DNS, and network policies"},
	Unfilled:     {false, "this is usual for the first client of a resource, and if kube-apiserver does not stream lists (WatchList)"},
	Certificate:  {true, "see --seed-certificate-authority and --seed-tls-server-name; it is usual while the certificate is replaced"},
	Refused:      {true, "the replicas must have the same rights, and a sibling must accept this replica's token or certificate"},
	Unidentified: {true, "let watchfan get the namespace kube-system"},
	OtherCluster: {true, "see --seed-from: its replicas must serve the cluster that this one serves"},
	OtherBuild:   {false, "this is usual while the control plane is upgraded"},
	OtherVersion: {false, "this is usual while watchfan is upgraded; otherwise see --seed-from"},
	Unusable:     {true, "see --seed-certificate-authority, --tls-cert-file and the kubeconfig"},
	Slow:         {true, "see the sibling's load and the network between the replicas"},
	Broken:       {false, "this is usual if the sibling has just ended; otherwise see its log"},
	TooOld:       {false, "this is usual for events, if there have been none for minutes; otherwise see the sibling's /debug/lanes"},
	Ahead:        {true, "etcd may have been restored: see the sibling's log"},
}

// Failure is why there is no seed.
type Failure struct {
	Reason Reason
	Err    error
}

func (f *Failure) Error() string { return fmt.Sprintf("%s: %v", f.Reason, f.Err) }
func (f *Failure) Unwrap() error { return f.Err }

// usual reports whether siblings often fail in this way, one that another may make up for.
func (f *Failure) usual() bool { return f.Reason == NoSibling || f.Reason == Unfilled }

// Fail returns a Failure.
func Fail(reason Reason, format string, args ...any) *Failure {
	return &Failure{reason, fmt.Errorf(format, args...)}
}

var seedFailures = exposition.Describe("counter", "watchfan_seed_failures_total",
	"Times that a lane could not be filled from a sibling replica, and was listed at kube-apiserver, by reason.")

// failures counts why lanes were not filled, and logs the first failure of each reason. The others
// are for debugging. Its methods may be called from any goroutine.
type failures struct {
	counts map[Reason]*metrics.Counter
	logged sync.Map // the reasons
}

// init adds the counters to a server's set.
func (all *failures) init(set *metrics.Set) {
	all.counts = make(map[Reason]*metrics.Counter, len(hints))
	for reason := range hints {
		all.counts[reason] = set.NewCounter(fmt.Sprintf("%s{reason=%q}", seedFailures, string(reason)))
	}
}

// add counts and logs why a lane was not filled from a sibling.
func (all *failures) add(log *slog.Logger, f *Failure) {
	all.counts[f.Reason].Inc()
	say, todo := log.Debug, ""
	if _, logged := all.logged.LoadOrStore(f.Reason, true); !logged {
		if say, todo = log.Info, hints[f.Reason].todo; hints[f.Reason].warn {
			say = log.Warn
		}
	}
	say("No sibling has filled the lane, listing it at kube-apiserver", "reason", string(f.Reason), "err", f.Err, "todo", todo)
}
