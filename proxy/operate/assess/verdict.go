package assess

import "fmt"

// Verdict says whether a cluster needs watchfan.
type Verdict string

const (
	// NotNeeded: watches cost little, and a storm of them would too.
	NotNeeded Verdict = "NotNeeded"
	// HelpsInStorms: watches cost little, but it costs much when all begin again.
	HelpsInStorms Verdict = "HelpsInStorms"
	// Helps: watches take a part of kube-apiserver that is worth the tier.
	Helps Verdict = "Helps"
	// Needed: watches take most of what kube-apiserver does.
	Needed Verdict = "Needed"
)

// The bounds of the verdicts.
const (
	muchCPU, muchShare   = 0.5, 0.5         // cores, and part of kube-apiserver's CPU: Needed
	someCPU, someShare   = 0.25, 0.1        // the same: Helps
	someMemory           = float64(1 << 30) // bytes: Helps
	stormSeconds         = 60.0             // CPU time of kube-apiserver: HelpsInStorms
	mostProfit, leastCPU = 5, 0.005         // resources that are named, and what each must save, in cores
)

// judge sets the verdict and its reasons.
func (a *Assessment) judge() {
	saved, share := a.Total.SavedCPU.Mid-a.APIServer.Reviews.Mid, 0.0
	if a.APIServer.CPU > 0 {
		share = saved / a.APIServer.CPU
	}
	memory := a.APIServer.WatchMemory.Mid - a.APIServer.WatchMemoryLeft.Mid
	steady := fmt.Sprintf("watches that could move to watchfan take about %s of the %s cores that kube-apiserver uses, "+
		"and %s of memory", number(max(saved, 0)), number(a.APIServer.CPU), size(max(memory, 0)))
	storm := fmt.Sprintf("if all %s watches began again at once, kube-apiserver would send %s objects and need about %s "+
		"CPU-seconds; watchfan needs %s", number(a.Total.Watches), number(a.Storm.Objects), number(a.Storm.APIServer.Mid), number(a.Storm.Tier.Mid))
	switch {
	case saved >= muchCPU && share >= muchShare:
		a.Verdict = Needed
	case saved >= someCPU && share >= someShare, memory >= someMemory:
		a.Verdict = Helps
	case a.Storm.APIServer.Mid >= stormSeconds:
		a.Verdict = HelpsInStorms
	default:
		a.Verdict = NotNeeded
	}
	a.Reasons = []string{steady, storm}
}

// sentences begin the answer.
var sentences = map[Verdict]string{
	NotNeeded:     "You do not need it.",
	HelpsInStorms: "You do not need it from day to day. It helps when many clients begin again at once.",
	Helps:         "It helps.",
	Needed:        "You need it: watches are most of what kube-apiserver does.",
}
