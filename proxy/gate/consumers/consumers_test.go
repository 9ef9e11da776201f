package consumers

import (
	"encoding/base64"
	"fmt"
	"hash/maphash"
	"log/slog"
	"math"
	"net/http"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"github.com/prometheus/common/expfmt"
	"github.com/prometheus/common/model"
	"golang.org/x/time/rate"

	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

func newRegister(o Options) *Register {
	r := New(&o, true, nil, metrics.NewSet(), slog.New(slog.DiscardHandler))
	r.rounds.cpu = 0
	return r
}

// A program's name has no version, platform or commit, and is safe to show.
func TestProgramOf(t *testing.T) {
	for agent, want := range map[string]string{
		"kubelet/v1.37.2 (linux/amd64) kubernetes/0a1b2c3":                                 "kubelet",
		"kube-controller-manager/v1.37.2 (linux/amd64) kubernetes/0a1b2c3/leader-election": "kube-controller-manager/leader-election",
		"manager/v0.0.0 (linux/amd64) kubernetes/$Format":                                  "manager",
		"Go-http-client/2.0": "Go-http-client",
		"curl":               "curl",
		"":                   "(none)",
		"/1":                 "(none)",
		"a\x1b[2J/1":         "a\ufffd[2J",
	} {
		if got := ProgramOf(agent); got != want {
			t.Errorf("%q: %q, want %q", agent, got, want)
		}
	}
	if got := ProgramOf(strings.Repeat("x", 1000)); len(got) > maxProgram {
		t.Errorf("%d bytes", len(got))
	}
}

// Clients are counted within a tenth, up to thousands.
func TestClients(t *testing.T) {
	for _, n := range []int{0, 1, 10, 500, 5000} {
		var now, before clients
		for i := range n {
			for range 3 {
				now.add(maphash.Comparable(seed, i))
			}
			if i%2 == 0 {
				before.add(maphash.Comparable(seed, i))
			}
		}
		if got := estimateClients(&now, &before); math.Abs(got-float64(n)) > 0.1*float64(n)+1 {
			t.Errorf("%d clients: %.0f", n, got)
		}
	}
}

// The habits of clients are named in words, and those of a good client are none.
func TestFaults(t *testing.T) {
	for name, test := range map[string]struct {
		habit
		clients float64
		want    []string
	}{
		"5000 agents list": {habit{lists: 100_000, newest: 100_000, json: 100_000, whole: 100_000}, 5000, []string{
			"lists pods every 15 s where a watch would do",
			"no resourceVersion: 100000 of 100000 lists of pods ask for the newest state, which kube-apiserver must prove",
			"decodes JSON of pods where protobuf is offered"}},
		"informers":         {habit{lists: 5000, watches: 10_000, whole: 15_000}, 5000, nil},
		"informers relist":  {habit{lists: 50_000, watches: 10_000, whole: 60_000}, 10_000, []string{"lists pods every 60 s beside its watch"}},
		"gets":              {habit{gets: 270_000}, 90, []string{"gets single pods 900 times a second where a watch would do"}},
		"a controller gets": {habit{gets: 100, watches: 1, whole: 1}, 1, nil},
		"two caches":        {habit{watches: 2, whole: 1, metadata: 1}, 1, []string{"reads pods whole and their metadata too"}},
		"kubectl":           {habit{lists: 2, newest: 2, gets: 4, whole: 2}, 1, nil},
	} {
		if got := test.faults("pods", habitWindow, test.clients); !slices.Equal(got, test.want) {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

// What a round attributes is what the process has used, in the proportions of the model. A watch that a round
// does not see, because it has just ended, counts in the next.
func TestAttribute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegister(Options{})
		a, b := Name{"a", "x"}, Name{"b", "y"}
		used := func(of Name) float64 { return r.named(of).counts.all.CPU }
		cpu := time.Duration(0)
		round := func(open map[Name]Watches) {
			time.Sleep(roundEvery)
			cpu += time.Second
			r.attribute(func() map[Name]Watches { return open }, 0, cpu, time.Now())
			if sum := used(a) + used(b) + used(own); math.Abs(sum-cpu.Seconds()) > 1e-9 {
				t.Errorf("the sum is %v, want %v", sum, cpu)
			}
		}
		list := &request.Request{Info: request.Info{IsResource: true, Method: http.MethodGet, Verb: "list"}}
		for i := range 40 {
			of := a
			if i%4 == 0 {
				of = b
			}
			r.named(of).answered(list, 1, lists, 1e8, 0, time.Now())
		}
		round(nil)
		if ratio := used(a) / used(b); math.Abs(ratio-3) > 1e-9 {
			t.Errorf("a had three times as much work, and %v times the time", ratio)
		}
		sent := Delivered{Events: 100, Bytes: 1e5, Writes: 50}
		watched := map[Name]Watches{a: {Open: 1, Sent: [2]Delivered{sent}}}
		before := used(b)
		round(watched)
		round(nil)
		r.WatchEnded(a, sent, 0)
		round(nil)
		if c := r.named(a).counts.all; c.Events != 100 || c.Bytes != 1e5 || used(b) != before {
			t.Errorf("%+v, and the other has %v more", c, used(b)-before)
		}
	})
}

// However many programs there are, few are kept, and a heavy one among them. What the others have cost is
// not lost. One user has few programs.
func TestBounded(t *testing.T) {
	r := newRegister(Options{})
	get := &request.Request{Info: request.Info{IsResource: true, Method: http.MethodGet, Verb: "get"}}
	const all = 20 * mostKept
	for i := range all {
		r.named(Name{fmt.Sprint(i), "x"}).answered(get, 1, gets, 0, 10, time.Now())
		r.named(Name{"heavy", "x"}).answered(get, 1, gets, 0, 1000, time.Now())
		if i%mostKept == 0 {
			r.makeRoom()
		}
	}
	bytes := uint64(0)
	for _, c := range r.all() {
		bytes += c.counts.all.Bytes
	}
	if n := len(r.all()); n > mostKept+1 || r.named(Name{"heavy", "x"}).counts.all.Requests != all || bytes != 1010*all {
		t.Errorf("%d are kept, %d bytes in all", n, bytes)
	}
	r, one := newRegister(Options{}), make(map[*Consumer]bool)
	for i := range 1000 {
		one[r.named(Name{"liar", fmt.Sprint(i)})] = true
	}
	if len(one) != mostPrograms+1 {
		t.Errorf("one user has %d programs", len(one))
	}
}

// What consumers have cost before they count among the others is no rate of the others.
func TestRatesOfOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegister(Options{})
		r.Read(func() map[Name]Watches { return nil }, func() uint64 { return 0 })
		get := &request.Request{Info: request.Info{IsResource: true, Method: http.MethodGet, Verb: "get"}}
		rounds := func(n int) {
			for range n {
				time.Sleep(roundEvery)
				r.round(0)
			}
		}
		const long = 1_000_000
		for range long {
			r.named(Name{"long", "x"}).answered(get, 1, gets, 0, 10, time.Now())
		}
		rounds(24)
		for i := range mostKept {
			r.named(Name{fmt.Sprint(i), "x"}).answered(get, 1, gets, 0, 10, time.Now())
		}
		rounds(1)
		for _, row := range r.Report(mostKept).Consumers {
			if row.User == "long" || row.User == rest.User && (row.Requests > mostKept || row.Total.Requests < long) {
				t.Errorf("%s has %v a second, %d in all", row.User, row.Requests, row.Total.Requests)
			}
		}
	})
}

// A counter of the metrics never falls, and the others' does not rise, because a consumer counts among the others from
// now on.
func TestMetricsWhenFull(t *testing.T) {
	r := newRegister(Options{})
	get := &request.Request{Info: request.Info{IsResource: true, Method: http.MethodGet, Verb: "get"}}
	ask := func(user string, requests int) {
		for range requests {
			r.named(Name{user, "kubectl"}).answered(get, 1, gets, 0, 10, time.Now())
		}
	}
	cpu := 0.
	requests := func() (users, others int) {
		now := 0.
		var text strings.Builder
		r.writeMetrics(&text)
		for line := range strings.Lines(text.String()) {
			_, _ = fmt.Sscanf(line, `watchfan_consumer_requests_total{user="(user)",program="kubectl"} %d`, &users)
			_, _ = fmt.Sscanf(line, `watchfan_consumer_requests_total{user="(others)",program="(any)"} %d`, &others)
			_, _ = fmt.Sscanf(line, `watchfan_consumer_cpu_seconds_total{user="(user)",program="kubectl"} %g`, &now)
		}
		if now < cpu {
			t.Errorf("the processor time was %v, and is %v", cpu, now)
		}
		cpu = now
		return users, others
	}
	want := 0
	for i := range 3 * mostKept {
		ask(fmt.Sprint(i), 3)
		r.named(Name{fmt.Sprint(i), "kubectl"}).counts.all.CPU += float64(i) / 7
		if want += 3; len(r.kept) >= mostKept {
			requests()
			r.makeRoom()
			if users, others := requests(); users != want || others != 0 {
				t.Fatalf("%d requests of users, want %d, and %d of others", users, want, others)
			}
		}
	}
}

// A watch that ends while a round looks at the open ones counts once.
func TestEndsMeanwhile(t *testing.T) {
	r, a, sent := newRegister(Options{}), Name{"a", "x"}, Delivered{Events: 100, Bytes: 1e5, Writes: 50}
	r.Read(func() map[Name]Watches {
		r.WatchEnded(a, sent, 0)
		return map[Name]Watches{a: {Open: 1, Sent: [2]Delivered{sent}}}
	}, func() uint64 { return 0 })
	r.named(a)
	r.round(0)
	if c := r.named(a).counts.all; c.Events != 100 || c.Bytes != 1e5 {
		t.Errorf("%+v", c)
	}
	r.Read(func() map[Name]Watches { return nil }, func() uint64 { return 0 })
	r.round(0)
	if c := r.named(a).counts.all; c.Events != 100 || c.Bytes != 1e5 {
		t.Errorf("%+v after another round", c)
	}
}

// A habit keeps a short name of its resource, which is safe to show, and nothing of a long target.
func TestHabitNames(t *testing.T) {
	r := newRegister(Options{})
	c := r.named(Name{"mallory", "x"})
	for _, path := range []string{"/api/v1/a%1b%5b2J", "/api/v1/" + strings.Repeat("a", 10_000), "/api/v1/pods?x=" + strings.Repeat("x", 10_000)} {
		req, _ := request.Parse(proxytest.MustRead(t, path))
		c.answered(req, 1, lists, 0, 0, time.Now())
	}
	for name := range c.habits {
		if len(name) > 256 || strings.ContainsRune(name, 0x1b) {
			t.Errorf("%d bytes: %.20q", len(name), name)
		}
	}
}

// A consumer keeps a short name of its program, and nothing of the long head that the name came in.
func TestProgramNames(t *testing.T) {
	const long, most = 512 << 10, 16 << 10
	r := newRegister(Options{})
	id := auth.Identity{Kind: auth.KindCertificate, User: &auth.UserInfo{Name: "mallory"}}
	before := proxytest.Heap()
	for i := range mostPrograms {
		agent := fmt.Sprintf("a%d/", i) + strings.Repeat("x", long)
		x := proxytest.MustRead(t, "/api/v1/pods")
		x.Header.Set("User-Agent", agent)
		r.Of(x, id)
	}
	if each := (proxytest.Heap() - before) / mostPrograms; each > most || len(r.kept) != mostPrograms {
		t.Errorf("%d bytes for each of %d consumers, want at most %d", each, len(r.kept), most)
	}
}

// A client with 10,000 user agents and 10,000 tokens, accepted or not, costs little memory, and its names do not
// spoil the metrics, which have at most 50 series. Its nodes are one user.
func TestHostile(t *testing.T) {
	const many = 10_000
	tokens := auth.NewKnownTokens()
	guard := proxytest.Guard()
	r := newRegister(Options{EasyReads: 10, NewConsumerReads: 10})
	r.auth = auth.NewAuthorizer(nil, tokens, &auth.Options{}, false, auth.NewMetrics(metrics.NewSet()), guard)
	r.Read(func() map[Name]Watches { return nil }, func() uint64 { return 0 })
	x := proxytest.MustRead(t, "/api/v1/namespaces/ns/pods/a", "User-Agent: x")
	x.Conn = proxytest.Conn{}
	req, _ := request.Parse(x)
	ask := func(agent string, id auth.Identity) {
		x.Header.Set("User-Agent", agent)
		r.Answered(x, id, req, false)
	}
	for i := range many {
		subject := base64.RawURLEncoding.EncodeToString(fmt.Appendf(nil, `{"sub":"system:serviceaccount:ns:a%d"}`, i))
		known, unknown := "e30."+subject+".c", fmt.Sprintf("garbage-%d", i)
		tokens.Answered(auth.Identity{Kind: auth.KindToken, Token: known}, http.MethodGet, http.StatusOK)
		agent := fmt.Sprintf("a%d\"\\\u200b\xff\n}/1", i)
		ask(agent, auth.Identity{Kind: auth.KindToken, Token: unknown})
		ask(agent, auth.Identity{Kind: auth.KindToken, Token: known})
		ask(agent, auth.Identity{Kind: auth.KindCertificate, User: &auth.UserInfo{Name: "mallory\u202e"}})
		ask("kubelet/v1", auth.Identity{Kind: auth.KindCertificate, User: &auth.UserInfo{Name: fmt.Sprintf("system:node:%d", i)}})
		if i%1000 == 0 {
			r.round(0)
		}
	}
	requests, nodes := uint64(0), r.named(Name{"system:nodes", "kubelet"}).counts.all.Requests
	for _, c := range r.all() {
		requests += c.counts.all.Requests
		if len(c.habits) > mostHabits {
			t.Errorf("%v has %d habits", c.Name, len(c.habits))
		}
	}
	if kept, aliases := len(r.kept), len(r.aliases); kept > mostKept+3 || aliases > mostAliases || requests != 4*many || nodes != many {
		t.Errorf("%d consumers, %d aliases, %d requests, %d of nodes", kept, aliases, requests, nodes)
	}
	var text strings.Builder
	r.writeMetrics(&text)
	parser := expfmt.NewTextParser(model.UTF8Validation)
	families, err := parser.TextToMetricFamilies(strings.NewReader(text.String()))
	series := 0
	for _, f := range families {
		series += len(f.Metric)
	}
	if err != nil || series < mostSeries || series > 50 {
		t.Errorf("%d series, %v:\n%s", series, err, text.String())
	}
}

// Metrics name service accounts and nobody else: all other users of a program are one.
func TestMetricsNameNobody(t *testing.T) {
	r := newRegister(Options{})
	for i, user := range []string{"jane", "joe", "system:serviceaccount:ns:agent"} {
		r.named(Name{user, "kubectl"}).counts.all.Requests = uint64(i + 1)
	}
	var text strings.Builder
	r.writeMetrics(&text)
	for _, line := range []string{`requests_total{user="(user)",program="kubectl"} 3`, `requests_total{user="system:serviceaccount:ns:agent",program="kubectl"} 3`} {
		if s := text.String(); !strings.Contains(s, line) || strings.Contains(s, "jane") {
			t.Errorf("the metrics lack %s:\n%s", line, s)
		}
	}
}

// Who always wants more easy reads than there are gets none, and some after a pause.
func TestOwing(t *testing.T) {
	l, now, got := rate.NewLimiter(5, 5*burst), time.Now(), 0
	for range 100 * 100 {
		if owing(l, now) {
			got++
		}
		now = now.Add(10 * time.Millisecond)
	}
	if got < 50 || got > 54 {
		t.Errorf("%d of 10,000 in 100 s, want the 52 that were there", got)
	}
	if !owing(l, now.Add(time.Minute)) {
		t.Error("nothing after a pause")
	}
}

// The budget of a new program grows until it has none, and shrinks while kube-apiserver suffers. Programs
// that were seen soon after the start have none.
func TestBudget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRegister(Options{NewConsumerReads: 100})
		if b := r.named(Name{"old", "x"}).budget; b.reads != 0 {
			t.Errorf("a program that is there at the start has %v", b.reads)
		}
		time.Sleep(learning)
		c := r.named(Name{"new", "x"})
		round := func(code int, want float64) {
			t.Helper()
			time.Sleep(growEvery)
			for range fewAnswers {
				r.health.note(code, time.Millisecond, time.Now())
			}
			r.attribute(func() map[Name]Watches { return nil }, 0, 0, time.Now())
			if c.budget.reads != want {
				t.Errorf("after %d: %v a second, want %v", code, c.budget.reads, want)
			}
		}
		round(http.StatusOK, 200)
		round(http.StatusOK, 400)
		round(http.StatusTooManyRequests, 200)
		round(http.StatusOK, 400)
		round(http.StatusOK, 800)
		round(http.StatusOK, 0)
		round(http.StatusTooManyRequests, 0)
	})
}

// BenchmarkAnswered is what a request costs to be counted.
func BenchmarkAnswered(b *testing.B) {
	tokens := auth.NewKnownTokens()
	r := newRegister(Options{EasyReads: 10})
	r.auth = auth.NewAuthorizer(nil, tokens, &auth.Options{}, false, auth.NewMetrics(metrics.NewSet()), proxytest.Guard())
	x := proxytest.MustRead(b, "/api/v1/namespaces/ns/pods/a", "User-Agent: kubelet/v1.37.2 (linux/amd64) kubernetes/0a1b2c3")
	x.Conn = proxytest.Conn{}
	req, _ := request.Parse(x)
	subject := base64.RawURLEncoding.EncodeToString([]byte(`{"sub":"system:serviceaccount:ns:a"}`))
	token := auth.Identity{Kind: auth.KindToken, Token: "e30." + subject + strings.Repeat("x", 800) + ".c"}
	for name, id := range map[string]auth.Identity{
		"certificate": {Kind: auth.KindCertificate, User: &auth.UserInfo{Name: "system:node:a", Groups: []string{"system:nodes"}}},
		"token":       token,
	} {
		tokens.Answered(id, http.MethodGet, http.StatusOK)
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				r.Of(x, id) // as a cached read
				r.Answered(x, id, req, false)
			}
		})
	}
}
