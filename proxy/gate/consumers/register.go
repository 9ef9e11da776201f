package consumers

import (
	"cmp"
	"context"
	"hash/maphash"
	"io"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/base/machine"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const (
	// mostKept bounds the consumers that are told apart. A consumer takes about 2 KiB.
	mostKept = 512
	// mostPrograms bounds those of one account: a user agent is whatever a client says.
	mostPrograms = 32
	// mostAliases bounds the credentials and user agents whose consumer is remembered.
	mostAliases = 16 << 10

	roundEvery = 5 * time.Second
	// roundShare is the least time between two rounds, in times that the last one took.
	roundShare = 200
	// rateWindow is how long rates are averages over: one to two windows.
	rateWindow = 30 * time.Second
)

var (
	strangers = Name{"(strangers)", "(any)"}      // whose token kube-apiserver has not accepted, or who have none
	rest      = Name{"(others)", "(any)"}         // those that are not kept any more
	program   = "(others)"                        // programs of an account that are not told apart
	own       = Name{"(watchfan)", "(following)"} // following kube-apiserver, and doing nothing
)

// Register knows the consumers. Its methods may be called from any goroutine.
type Register struct {
	auth    *auth.Authorizer
	opts    *Options
	groups  []string // exempt
	names   bool
	log     *slog.Logger
	started time.Time
	limited *metrics.Counter
	sources Sources

	handlers atomic.Uint64
	timed    atomic.Int64 // handlers that are timed now
	sampled  atomic.Int64 // when a handler was timed last, as a fanout.MonotonicTime

	mu       sync.RWMutex
	aliases  map[alias]*Consumer
	kept     map[Name]*Consumer
	programs map[string]int // kept, by account
	health   health

	roundMu sync.Mutex // held by a round
	rounds  rounds
}

// Sources are where a Register finds what it does not see itself. Both may be called from any goroutine.
type Sources struct {
	Watches  func() map[Name]Watches // the open ones that caches serve
	Followed func() uint64           // events that kube-apiserver has sent
}

// Read sets the sources. It is called before Run and Report.
func (r *Register) Read(from Sources) { r.sources = from }

// alias is a credential and a user agent, by their hashes.
type alias struct{ who, agent uint64 }

// New returns a Register without consumers. names says that the metrics may name accounts. The caller calls Read
// and Run.
func New(o *Options, names bool, a *auth.Authorizer, set *metrics.Set, log *slog.Logger) *Register {
	r := &Register{auth: a, opts: o, names: names, groups: append([]string{"system:masters"}, o.ExemptGroups...), log: log, started: time.Now(), limited: set.NewCounter(limitedRequests),
		aliases: make(map[alias]*Consumer), kept: make(map[Name]*Consumer), programs: make(map[string]int)}
	r.rounds.cpu = machine.ProcessorTime()
	r.rounds.at = r.started
	set.RegisterMetricsWriter(r.writeMetrics)
	return r
}

// Of returns the consumer that a request of id is from.
func (r *Register) Of(x *exchange.Exchange, id auth.Identity) *Consumer {
	agent := x.Header.Get("User-Agent")
	key := alias{identityHash(id), maphash.String(seed, agent)}
	r.mu.RLock()
	c := r.aliases[key]
	r.mu.RUnlock()
	if c != nil {
		return c
	}
	if id.Kind == auth.KindNobody || id.Kind == auth.KindAnonymous || id.Kind == auth.KindToken && r.auth.Source(id).Stranger {
		return r.named(strangers)
	}
	c = r.named(NameOf(id.ShownName(), agent))
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.aliases) >= mostAliases {
		clear(r.aliases)
	}
	if r.kept[c.Name] == c {
		r.aliases[key] = c
	}
	return c
}

// NameOf returns the name of the consumer with an account and a user agent.
func NameOf(account, agent string) Name { return Name{request.Shown(account), ProgramOf(agent)} }

// identityHash tells identities apart.
func identityHash(id auth.Identity) uint64 {
	switch {
	case id.User != nil:
		return maphash.String(seed, id.User.Name) + uint64(id.Kind)
	case id.Token != "":
		return maphash.String(seed, id.Token)
	}
	return uint64(id.Kind)
}

// named returns the consumer with a name, which it may have to begin to keep.
func (r *Register) named(n Name) *Consumer {
	r.mu.RLock()
	c := r.kept[n]
	r.mu.RUnlock()
	if c != nil {
		return c
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.keepLocked(n)
}

func (r *Register) keepLocked(n Name) *Consumer {
	if n.Program != program && r.programs[n.Account] >= mostPrograms && r.kept[n] == nil {
		n.Program = program
	}
	if c := r.kept[n]; c != nil {
		return c
	}
	if len(r.kept) >= mostKept {
		r.dropLocked()
	}
	now := time.Now()
	c := &Consumer{Name: n, register: r, first: now, budget: r.newBudget(n, now)}
	c.counts.turn(now, rateWindow)
	c.window.turn(now, habitWindow)
	r.kept[n] = c
	r.programs[n.Account]++
	return c
}

// dropLocked makes room: the consumer that has cost least in the last minute is counted among the others
// from now on. So a heavy one stays, however many light ones come.
func (r *Register) dropLocked() {
	var least *Consumer
	var cost float64
	now := time.Now()
	for _, c := range r.kept {
		if of := c.recentCost(now); c.droppable() && (least == nil || of < cost) {
			least, cost = c, of
		}
	}
	if least == nil {
		return
	}
	delete(r.kept, least.Name)
	if r.programs[least.Account]--; r.programs[least.Account] == 0 {
		delete(r.programs, least.Account)
	}
	maps.DeleteFunc(r.aliases, func(_ alias, c *Consumer) bool { return c == least })
	others := r.keepLocked(rest)
	least.mu.Lock()
	counts := least.counts.all
	work := least.work
	least.mu.Unlock()
	others.mu.Lock()
	others.counts.all, others.work = others.counts.all.plus(counts), others.work+work
	others.mu.Unlock()
}

func (c *Consumer) droppable() bool { return c.Name != rest && c.Name != strangers && c.Name != own }

// recentCost orders consumers by what they cost in the last minute.
func (c *Consumer) recentCost(now time.Time) float64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	then, _ := c.counts.over(now)
	d := c.counts.all.minus(then)
	return d.CPU + c.work/1e9 + d.Alone/10
}

// Answered counts a request of id whose handler h has just returned, or whose response goes on without it.
// opened says
// that it was the first on its connection. It is called on the handler's goroutine.
func (r *Register) Answered(h Handler, x *exchange.Exchange, id auth.Identity, req *request.Request, opened bool) {
	sample := r.end(h)
	if later := x.Response.Later; later != nil {
		x.Response.Later = func(x *exchange.Exchange) {
			h := r.Begin()
			defer func() { r.Answered(h, x, id, req, opened) }()
			later(x)
		}
		return
	}
	c, now := r.Of(x, id), time.Now()
	if x.Passed && x.Response.Detached == nil {
		r.health.note(x.Response.Code(), now.Sub(x.Received), now)
	}
	bytes := uint64(max(x.Response.BodyLength(), 0))
	if x.Response.Stream != nil {
		bytes = 0
	}
	work := 0.
	if opened {
		work = connectionWork(x.Conn.Secure())
	}
	c.answered(req, clientHash(x, id), wayOf(req, x.Passed), sample, work, bytes, now)
	switch resp := &x.Response; {
	case resp.Detached != nil:
		answer := resp.Detached
		resp.Detached = func(to exchange.Responder) { answer(countedResponder{to, c}) }
	case resp.Reader != nil && resp.Length < 0:
		resp.Reader = &countedBody{resp.Reader, c}
	}
}

// clientHash tells the clients of a consumer apart: by their addresses and their tokens, of which each pod
// has one of its own.
func clientHash(x *exchange.Exchange, id auth.Identity) uint64 {
	return identityHash(id) ^ maphash.Comparable(seed, auth.SourceOf(x))
}

// answered counts a request, and other work that it has caused.
func (c *Consumer) answered(
	req *request.Request, client uint64, by way, sample, work float64, bytes uint64, now time.Time,
) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last = now
	c.counts.all.Requests++
	if by == passed {
		c.counts.all.Passed++
	}
	c.counts.all.Bytes += bytes
	c.counts.all.Alone += aloneRequest + aloneByte*float64(bytes)
	c.work += c.requestWorkLocked(by, sample, bytes) + work
	c.clients[0].add(client)
	c.noteLocked(req, now)
}

// sent counts bytes of a body.
func (c *Consumer) sent(n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.counts.all.Bytes += uint64(n)
	c.counts.all.Alone += aloneByte * float64(n)
	c.work += passedByteCost * float64(n)
}

// countedBody counts the bytes of a body whose length is not known.
type countedBody struct {
	io.ReadCloser
	of *Consumer
}

func (b *countedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if n > 0 {
		b.of.sent(n)
	}
	return n, err
}

// countedResponder counts the bytes of a response that lasts, but not those of a connection that has
// changed its protocol.
type countedResponder struct {
	exchange.Responder
	of *Consumer
}

func (r countedResponder) Respond(resp *exchange.Response) {
	if resp.Reader != nil {
		resp.Reader = &countedBody{resp.Reader, r.of}
	}
	r.Responder.Respond(resp)
}

// Delivered is what watches from caches were sent.
type Delivered struct{ Events, Bytes uint64 }

func (d Delivered) plus(e Delivered) Delivered {
	return Delivered{d.Events + e.Events, d.Bytes + e.Bytes}
}

// WatchEnded counts a watch from a cache that has ended. streams says that it was one of several on its
// connection.
func (r *Register) WatchEnded(n Name, d Delivered, streams bool) {
	c := r.named(n)
	c.mu.Lock()
	defer c.mu.Unlock()
	i := 0
	if streams {
		i = 1
	}
	c.ended[i] = c.ended[i].plus(d)
}

// Watches are a consumer's open watches from caches.
type Watches struct {
	Sent   [2]Delivered // by those with a connection of their own, and by those that share one
	Open   int
	Copies []string // what is watched more than once on one connection, in words
}

// rounds is what a round begins with.
type rounds struct {
	at     time.Time
	cpu    time.Duration // of the process
	events uint64        // from kube-apiserver
}

// Run attributes the processor time until ctx ends.
func (r *Register) Run(ctx context.Context) {
	for wait := roundEvery; exchange.Sleep(ctx, wait); wait = max(roundEvery, roundShare*r.round(0)) {
	}
}

// round attributes the processor time since the last round, if that began so long ago. It returns how long
// that took.
func (r *Register) round(least time.Duration) time.Duration {
	r.roundMu.Lock()
	defer r.roundMu.Unlock()
	began := time.Now()
	if began.Sub(r.rounds.at) < least {
		return 0
	}
	r.attribute(r.sources.Watches(), r.sources.Followed(), machine.ProcessorTime(), time.Now())
	return time.Since(began)
}

// attribute divides the processor time since the last round among the consumers, in the proportions of the
// model. So their sum is what was measured.
func (r *Register) attribute(open map[Name]Watches, followed uint64, cpu time.Duration, now time.Time) {
	for n := range open {
		r.named(n)
	}
	base := r.named(own)
	last := r.rounds
	r.rounds.at, r.rounds.cpu, r.rounds.events = now, cpu, followed
	all := r.all()
	work := make([]float64, len(all))
	sum := 0.
	for i, c := range all {
		if c == base {
			work[i] = idleCost*now.Sub(last.at).Seconds() + followCost*float64(followed-min(followed, last.events))
		} else {
			work[i] = c.round(open[c.Name], now)
		}
		sum += work[i]
	}
	used := (cpu - last.cpu).Seconds()
	for i, c := range all {
		c.mu.Lock()
		if sum > 0 && used > 0 {
			c.counts.all.CPU += used * work[i] / sum
		}
		c.counts.turn(now, rateWindow)
		c.mu.Unlock()
	}
}

func (r *Register) all() []*Consumer {
	r.mu.RLock()
	defer r.mu.RUnlock()
	all := slices.Collect(maps.Values(r.kept))
	slices.SortFunc(all, func(a, b *Consumer) int {
		return cmp.Or(cmp.Compare(a.Account, b.Account), cmp.Compare(a.Program, b.Program))
	})
	return all
}

// round takes what the consumer has done since the last round.
func (c *Consumer) round(open Watches, now time.Time) (work float64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.open, c.crowded = open.Open, open.Copies
	for i := range c.seen {
		c.deliveredLocked(i, c.ended[i].plus(open.Sent[i]))
	}
	for _, h := range c.habits {
		h.turn(now, habitWindow)
	}
	if c.window.turn(now, habitWindow) {
		c.clients = [2]clients{{}, c.clients[0]}
	}
	c.budget.grow(now, c.register.health.suffers(now))
	work, c.work = c.work, 0
	return work
}

// deliveredLocked counts what watches were sent since the last round. A watch that has just ended may be
// missing in one round.
func (c *Consumer) deliveredLocked(i int, all Delivered) {
	seen := c.seen[i]
	if all.Events < seen.Events || all.Bytes < seen.Bytes {
		return
	}
	d := Delivered{all.Events - seen.Events, all.Bytes - seen.Bytes}
	c.seen[i] = all
	c.counts.all.Events += d.Events
	c.counts.all.Bytes += d.Bytes
	c.counts.all.Alone += aloneEvent * float64(d.Events)
	c.work += deliveryWork(d, i == 1)
}
