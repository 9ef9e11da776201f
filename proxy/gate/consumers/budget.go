package consumers

import (
	"context"
	"fmt"
	"sync"
	"time"

	"golang.org/x/time/rate"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/base/option"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Options are the budgets of consumers; see the package's documentation, Budgets.
type Options struct {
	EasyReads        int // a second; 0 is any number
	NewConsumerReads int // a second; 0 is any number
	// ExemptGroups are groups whose members have no budget, and whose reads get seats first.
	ExemptGroups []string
}

// AddTo adds the options to a table.
func (o *Options) AddTo(t *option.Table) {
	t.Group("Consumers")
	t.Int(&o.EasyReads, "easy-reads", EasyReads, "`READS` a second of one user and program on 64 or more clients that ask "+
		"kube-apiserver at once, although a cache can answer them; one that asks for more waits for up to 0.25 s and asks "+
		"together with others; 0 is any number", option.AtLeast(0))
	t.Int(&o.NewConsumerReads, "new-consumer-reads", 0, "`READS` a second that pass through, with which a user and program "+
		"begin that were not seen in watchfan's first ten minutes; the number doubles each minute while kube-apiserver is "+
		"well; more are rejected; 0 is any number", option.AtLeast(0))
	t.Strings(&o.ExemptGroups, "exempt-groups", "`GROUPS` besides system:masters whose members have none of these limits, and "+
		"are served first, such as system:nodes (default none)")
}

const (
	// ManyClients is the number of clients from which on a consumer's easy reads are counted. A few clients that
	// each read one object after the other are not slowed down.
	ManyClients = 64
	// EasyReads is the default of --easy-reads.
	EasyReads = 10
	// burst is how many seconds' reads may come at once.
	burst = 10
	// learning is how long each consumer that is seen counts as known: after a start all are new.
	learning = 10 * time.Minute
	// growEvery is how often a budget doubles or is halved, and enough is when it is not counted any more.
	growEvery = time.Minute
	enough    = 1000
	// sayEvery is the least time between two log lines about a consumer.
	sayEvery = 10 * time.Minute
)

// budget is what a consumer may have pass through. As many reads may come at once as in burst seconds.
type budget struct {
	easy, new    *rate.Limiter // new is nil if reads is 0
	least, reads float64       // a second, of new; 0 is any number
	grown        time.Time
}

// newBudget returns the budget of a consumer that is seen for the first time.
func (r *Register) newBudget(n Name, now time.Time) budget {
	easy, reads := r.opts.EasyReads, r.opts.NewConsumerReads
	b := budget{easy: rate.NewLimiter(rate.Limit(easy), burst*easy)}
	if reads > 0 && now.Sub(r.started) >= learning && n.single() {
		b.new, b.grown = rate.NewLimiter(rate.Limit(reads), burst*reads), now
		b.least, b.reads = float64(reads), float64(reads)
	}
	return b
}

// grow doubles the budget each minute, or halves it while kube-apiserver suffers.
func (b *budget) grow(now time.Time, suffers bool) {
	if b.reads == 0 || now.Sub(b.grown) < growEvery {
		return
	}
	b.grown = now
	if suffers {
		b.reads = max(b.least, b.reads/2)
	} else if b.reads *= 2; b.reads >= enough {
		b.reads = 0
	}
	b.new.SetLimitAt(now, rate.Limit(b.reads))
	b.new.SetBurstAt(now, int(burst*b.reads))
}

// Eager reports whether a read may ask kube-apiserver at once: because it passes through although a cache can
// answer it, or for a proof. It may be called on nil, which is nobody.
func (c *Consumer) Eager() bool {
	if c == nil || c.register.opts.EasyReads == 0 || !c.single() {
		return true
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if estimateClients(&c.clients[0], &c.clients[1]) < ManyClients {
		return true
	}
	return owing(c.budget.easy, time.Now())
}

// owing takes a token, and reports whether there was one. One that was not there is owed, as many as burst seconds
// bring at most. So who asks for more all the time has none at all.
func owing(l *rate.Limiter, now time.Time) bool {
	r := l.ReserveN(now, 1)
	wait := r.DelayFrom(now)
	if wait > burst*time.Second {
		r.CancelAt(now)
	}
	return wait == 0
}

// Admit returns the response to a read that would pass through and exceeds its consumer's budget; nil if it
// may pass. Writes are never refused: a program that cannot renew its lease does worse than one that reads.
func (r *Register) Admit(
	wait context.Context, x *exchange.Exchange, id auth.Identity, req *request.Request,
) *metav1.Status {
	if r.opts.NewConsumerReads == 0 || req.MetricVerb() == "other" {
		return nil
	}
	c, exempt := r.Of(x, id)
	if exempt || c.pays(time.Now()) || r.auth.InGroups(wait, id, r.exempt) {
		return nil
	}
	return r.refuse(c)
}

// pays reports whether the budget has room for a read.
func (c *Consumer) pays(now time.Time) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.budget.reads == 0 || c.budget.new.AllowN(now, 1)
}

// refuse counts a refusal, and logs one in a while.
func (r *Register) refuse(c *Consumer) *metav1.Status {
	r.rejected.Inc()
	c.mu.Lock()
	c.counts.all.Rejected++
	reads, faults := c.budget.reads, c.faultsLocked(time.Now())
	c.mu.Unlock()
	c.limited.Do(func() {
		r.log.Warn("Limited a new program", "user", c.User, "program", c.Program, "reads", reads, "faults", faults)
	})
	return apistatus.TooManyRequests(fmt.Sprintf("this user and program are new here, and may have %.3g reads a second "+
		"pass through to kube-apiserver for now", reads))
}

// health is how kube-apiserver answers what passes through.
type health struct {
	mu     sync.Mutex
	since  time.Time
	counts [2]answers // of this window, and the one before
}

type answers struct{ all, bad int }

const (
	healthWindow = 10 * time.Second
	// slowAnswer is how long an ordinary answer takes that is as bad as none.
	slowAnswer = time.Second
	// fewAnswers says nothing.
	fewAnswers = 10
)

// note counts an answer.
func (h *health) note(code int, took time.Duration, now time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turnLocked(now)
	h.counts[0].all++
	if apistatus.Busy(code) || took > slowAnswer {
		h.counts[0].bad++
	}
}

func (h *health) turnLocked(now time.Time) {
	switch passed := now.Sub(h.since); {
	case passed >= 2*healthWindow:
		h.counts, h.since = [2]answers{}, now
	case passed >= healthWindow:
		h.counts, h.since = [2]answers{{}, h.counts[0]}, now
	}
}

// suffers reports whether a tenth of the answers of the last ten to twenty seconds were refusals, failures
// or slow.
func (h *health) suffers(now time.Time) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.turnLocked(now)
	all, bad := h.counts[0].all+h.counts[1].all, h.counts[0].bad+h.counts[1].bad
	return all >= fewAnswers && bad*10 >= all
}
