package consumers

import (
	"cmp"
	"context"
	"hash/maphash"
	"io"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"golang.org/x/time/rate"

	"github.com/watchfan/watchfan/proxy/base/machine"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const (
	// mostKept bounds the consumers that are told apart. A consumer takes about 2 KiB.
	mostKept = 512
	// mostPrograms bounds those of one user: a user agent is whatever a client says.
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
	rest      = Name{"(others)", "(any)"}         // those that are not told apart
	program   = "(others)"                        // programs of a user that are not told apart
	own       = Name{"(watchfan)", "(following)"} // following kube-apiserver, and doing nothing
)

// single reports whether the name is of one user.
func (n Name) single() bool { return n != rest && n != strangers && n != own }

// Register knows the consumers. Its methods may be called from any goroutine.
type Register struct {
	auth     *auth.Authorizer
	opts     *Options
	exempt   []string // groups
	names    bool
	log      *slog.Logger
	started  time.Time
	rejected *metrics.Counter
	watches  func() map[Name]Watches // see Read
	followed func() uint64           // see Read

	mu       sync.RWMutex
	aliases  map[alias]known
	kept     map[Name]*Consumer
	programs map[string]int  // kept, by user
	moved    map[Name]Counts // what the metrics count under a public name, and the register under another: see dropLocked
	shown    map[Name]Counts // by the metrics, at last
	health   health

	roundMu sync.Mutex // held by a round
	rounds  rounds
	full    bool // consumers have made way
}

// Read tells the register where it finds what it does not see itself: the open watches that caches serve, and how many
// events kube-apiserver has sent. It is called before Run and Report. Both functions may be called from any goroutine.
func (r *Register) Read(watches func() map[Name]Watches, followed func() uint64) {
	r.watches, r.followed = watches, followed
}

// alias is a credential and a user agent, by their hashes.
type alias struct{ who, agent uint64 }

// known is what an alias stands for.
type known struct {
	*Consumer
	exempt bool
}

// New returns a Register without consumers. names says that the metrics may name service accounts. The
// caller calls Read and Run.
func New(o *Options, names bool, a *auth.Authorizer, set *metrics.Set, log *slog.Logger) *Register {
	r := &Register{auth: a, opts: o, names: names, exempt: append([]string{"system:masters"}, o.ExemptGroups...),
		log: log, started: time.Now(), rejected: apistatus.Rejections(set, "new_consumer"),
		aliases: make(map[alias]known), kept: make(map[Name]*Consumer), programs: make(map[string]int),
		moved: make(map[Name]Counts)}
	r.rounds.cpu = machine.ProcessorTime()
	r.rounds.at = r.started
	set.RegisterMetricsWriter(r.writeMetrics)
	return r
}

// Of returns the consumer that a request of id is from. exempt says that it is known to be in an exempt group.
// Nobody is asked.
func (r *Register) Of(x *exchange.Exchange, id auth.Identity) (c *Consumer, exempt bool) {
	agent := x.Header.Get("User-Agent")
	key := alias{identityHash(id), maphash.String(seed, agent)}
	r.mu.RLock()
	k, ok := r.aliases[key]
	r.mu.RUnlock()
	if !ok {
		k = r.learn(key, id, agent)
	}
	return k.Consumer, k.exempt || id.User != nil && r.auth.HasGroup(id, r.exempt)
}

// learn finds out what an alias stands for, and remembers it. A token has to be known.
func (r *Register) learn(key alias, id auth.Identity, agent string) known {
	switch nobody := id.Kind == auth.KindNobody || id.Kind == auth.KindAnonymous; {
	case nobody, id.Kind == auth.KindToken && r.auth.Source(id).Stranger:
		return known{Consumer: r.named(strangers)}
	}
	k := known{r.named(NameOf(id.ShownName(), agent)), id.User == nil && r.auth.HasGroup(id, r.exempt)}
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.aliases) >= mostAliases {
		clear(r.aliases)
	}
	if r.kept[k.Name] == k.Consumer {
		r.aliases[key] = k
	}
	return k
}

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

// named returns the consumer with a name, which it may have to begin to keep. If too many are kept, it is that of
// the others.
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
	if r.programs[n.User] >= mostPrograms && r.kept[n] == nil {
		n.Program = program
	}
	if c := r.kept[n]; c != nil {
		return c
	}
	if len(r.kept) >= mostKept && n.single() {
		return r.keepLocked(rest)
	}
	n.Program = strings.Clone(n.Program) // it may be a slice of a request's head
	now := time.Now()
	c := &Consumer{Name: n, register: r, first: now, budget: r.newBudget(n, now),
		limited: rate.Sometimes{Interval: sayEvery}}
	c.counts.turn(now, rateWindow)
	c.window.turn(now, habitWindow)
	r.kept[n] = c
	r.programs[n.User]++
	return c
}

// makeRoom lets a quarter of the consumers count among the others if no more can be kept: those that have cost
// least in the last minute. So a heavy one stays, however many light ones come. Those with open watches stay too.
func (r *Register) makeRoom() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.kept) < mostKept {
		return
	}
	r.full = true
	costs := make(map[*Consumer]float64)
	for _, c := range r.kept {
		if c.single() && c.open == 0 {
			costs[c] = c.recentCost()
		}
	}
	light := slices.SortedFunc(maps.Keys(costs), func(a, b *Consumer) int { return cmp.Compare(costs[a], costs[b]) })
	for _, c := range light[:min(mostKept/4, len(light))] {
		r.dropLocked(c)
	}
	others, public := r.keepLocked(rest), make(map[Name]bool)
	for n := range r.kept {
		public[n.public()] = true
	}
	maps.DeleteFunc(r.moved, func(n Name, _ Counts) bool { return !public[n] }) // their series end
	maps.DeleteFunc(r.aliases, func(_ alias, k known) bool { return k.Consumer == others || r.kept[k.Name] != k.Consumer })
}

// dropLocked makes a consumer count among the others. Not in the metrics: the series of its public name, which may be
// that of many, does not fall, and that of the others does not rise by what another has shown.
func (r *Register) dropLocked(c *Consumer) {
	delete(r.kept, c.Name)
	if r.programs[c.User]--; r.programs[c.User] == 0 {
		delete(r.programs, c.User)
	}
	c.mu.Lock()
	counts, work := c.counts, c.work
	c.mu.Unlock()
	r.moved[c.public()] = r.moved[c.public()].plus(counts.all)
	r.moved[rest] = r.moved[rest].minus(counts.all)
	others := r.keepLocked(rest)
	others.mu.Lock()
	defer others.mu.Unlock()
	others.counts.all, others.work = others.counts.all.plus(counts.all), others.work+work
	for i, before := range counts.before { // what it has cost earlier is no rate of the others
		others.counts.before[i] = others.counts.before[i].plus(before)
	}
}

// Answered counts a request of id whose handler has just returned, or whose response goes on without it. opened
// says that it was the first on its connection. It is called on the handler's goroutine.
func (r *Register) Answered(x *exchange.Exchange, id auth.Identity, req *request.Request, opened bool) {
	if later := x.Response.Later; later != nil {
		x.Response.Later = func(x *exchange.Exchange) {
			defer func() { r.Answered(x, id, req, opened) }()
			later(x)
		}
		return
	}
	now := time.Now()
	if x.Passed && x.Response.Detached == nil && req.Subresource != "eviction" { // whose 429 is a disruption budget's
		took := time.Duration(0)
		if !x.Sent.IsZero() {
			took = now.Sub(x.Sent)
		}
		code := x.Response.Code()
		if x.GivenUp {
			code = 0 // which is not kube-apiserver's: only the time may be
		}
		r.health.note(code, took, now)
	}
	bytes := uint64(max(x.Response.BodyLength(), 0))
	if x.Response.Stream != nil {
		bytes = 0
	}
	work := 0.
	if opened {
		work = connectionWork(x.Conn.Secure())
	}
	c, _ := r.Of(x, id)
	c.answered(req, clientHash(x, id), kindOf(req, x), work, bytes, now)
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
type Delivered struct{ Events, Bytes, Writes uint64 }

// Plus returns the sum of both.
func (d Delivered) Plus(e Delivered) Delivered {
	return Delivered{d.Events + e.Events, d.Bytes + e.Bytes, d.Writes + e.Writes}
}

func (d Delivered) minus(e Delivered) Delivered {
	return Delivered{d.Events - e.Events, d.Bytes - e.Bytes, d.Writes - e.Writes}
}

// WatchEnded counts a watch from a cache that has ended. shared is 1 if others shared its connection.
func (r *Register) WatchEnded(n Name, d Delivered, shared int) {
	c := r.named(n)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended[shared] = c.ended[shared].Plus(d)
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
	r.attribute(r.watches, r.followed(), machine.ProcessorTime(), time.Now())
	r.makeRoom()
	return time.Since(began)
}

// attribute divides the processor time since the last round among the consumers, in the proportions of the
// model. So their sum is what was measured.
func (r *Register) attribute(watches func() map[Name]Watches, followed uint64, cpu time.Duration, now time.Time) {
	base := r.named(own)
	r.named(rest) // its window is as long as that of those who count among it later
	last := r.rounds
	r.rounds = rounds{now, cpu, followed}
	all := r.all()
	work, ended := make([]float64, len(all)), make([][2]Delivered, len(all))
	for i, c := range all { // first: a watch that ends meanwhile must not count among both
		c.mu.Lock()
		ended[i] = c.ended
		c.mu.Unlock()
	}
	sum, open := 0., watches()
	for i, c := range all {
		if c == base {
			work[i] = idleCost*now.Sub(last.at).Seconds() + followCost*float64(followed-min(followed, last.events))
		} else {
			work[i] = c.round(open[c.Name], ended[i], now)
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
	return slices.SortedFunc(maps.Values(r.kept), func(a, b *Consumer) int {
		return cmp.Or(cmp.Compare(a.User, b.User), cmp.Compare(a.Program, b.Program))
	})
}
