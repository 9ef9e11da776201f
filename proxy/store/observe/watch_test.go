package observe_test

import (
	"context"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/gate/view"
	"github.com/watchfan/watchfan/proxy/store/observe"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// world is a cache beside a kube-apiserver that a test writes, and an observed watch of both.
type world struct {
	t        *testing.T
	observer *observe.Observer
	cache    *fanout.Cache
	flusher  *fanout.Flusher
	scanner  framing.Scanner
	follower exchange.Follower
	corrupt  func(line string) []string // what the cache sends in place of an event; nil changes nothing
	broken   func()                     // called by each Write of the sink; nil for nothing
	list     func() []byte              // is what the cache answers to a list; nil for none
	encoding framing.Encoding           // that the cache is said to have
	halts    chan time.Duration         // that the observer stands still when it looks at an event; nil for none
	differed []schema.GroupVersionResource
	sub      *fanout.Subscription // of the cache, the latest
	rv       uint64
}

// start returns a world whose observed watch has begun at resourceVersion 100.
func start(t *testing.T, change func(*world)) *world {
	set := metrics.NewSet()
	ctx, cancel := context.WithCancel(t.Context())
	w := &world{t: t, scanner: framing.NewScanner(framing.JSON, nil), encoding: framing.JSON, rv: 100}
	if change != nil {
		change(w)
	}
	w.flusher = fanout.NewFlusher(1, 0, fanout.NewMetrics(set))
	done := make(chan struct{})
	go func() { defer close(done); w.flusher.Run(ctx) }()
	limits := fanout.Limits{HistoryEvents: 1000, HistoryBytes: 1 << 20, ClientFrames: 1000, ClientBytes: 1 << 20}
	w.cache = fanout.NewCache(limits, w.flusher)
	if _, err := w.cache.Replace(nil, 100, time.Now()); err != nil {
		t.Fatal(err)
	}
	ev, err := w.scanner.Event([]byte(proxytest.ConfigMaps.Bookmark(100, false)))
	if err != nil {
		t.Fatal(err)
	}
	w.cache.SetBookmarkForm(ev.Form)
	w.observer = observe.New(ctx, observe.Config{
		Options: &observe.Options{}, Metrics: set, Guard: proxytest.Guard(),
		OnDifference: func(gvr schema.GroupVersionResource, _ observe.Kind) { w.differed = append(w.differed, gvr) }})
	t.Cleanup(func() { cancel(); w.observer.Wait(); <-done })
	w.follower = w.follow(observe.Read{Watch: true, ResourceVersion: 100})
	return w
}

// follow begins an observation.
func (w *world) follow(read observe.Read) exchange.Follower {
	read.GVR, read.Resource = schema.GroupVersionResource{Version: "v1", Resource: "configmaps"}, "v1/configmaps"
	read.Open = w.open
	f := w.observer.Follow(observe.Client{}, observe.Observe, read)
	f.Began(http.Header{"Content-Type": {"application/json"}})
	synctest.Wait()
	return f
}

func (w *world) open(context.Context, string) (observe.Side, string) { return w, "" }

// w is the cache's side of the watch, with a sink that corrupts.

func (w *world) Encoding() framing.Encoding {
	select {
	case halt := <-w.halts:
		time.Sleep(halt) //testlint:allow timer each test is in a bubble
	default:
	}
	return w.encoding
}

func (w *world) Cache() *fanout.Cache { return w.cache }
func (w *world) Close()               {}

func (w *world) List(uint64) ([][]byte, string) {
	if w.list == nil {
		return nil, "no list"
	}
	return [][]byte{w.list()}, ""
}

func (w *world) Wanted() fanout.Request {
	all, _ := fanout.NewFilter("", nil, nil, nil)
	return fanout.Request{Filter: all, Variant: fanout.Whole}
}

func (w *world) State(rv uint64, f func(*framing.Object)) string {
	s, ok := w.cache.SnapshotAt(rv)
	if !ok {
		return "history"
	}
	s.Visit(w.Wanted().Filter, "", func(o *framing.Object, _ bool) bool { f(o); return true })
	return ""
}

func (w *world) Start(sub *fanout.Subscription, sink fanout.Sink) {
	w.sub = sub
	w.flusher.Start(sub, corrupting{sink, w})
}

type corrupting struct {
	fanout.Sink
	w *world
}

func (c corrupting) Write(batch [][]byte) (bool, error) {
	if c.w.broken != nil {
		c.w.broken()
	}
	if c.w.corrupt == nil {
		return c.Sink.Write(batch)
	}
	var sent [][]byte
	for len(batch) > 0 {
		first, second, rest, _ := framing.NextPayload(batch)
		for _, line := range c.w.corrupt(string(first) + string(second)) {
			sent = append(sent, fmt.Appendf(nil, "%x\r\n%s\r\n", len(line), line))
		}
		batch = rest
	}
	return c.Sink.Write(sent)
}

// put is an event that kube-apiserver sends to the client and to the cache.
func (w *world) put(name string) string {
	line := w.line(name)
	ev, err := w.scanner.Event([]byte(line))
	if err != nil {
		w.t.Fatal(err)
	}
	if err := w.cache.Apply(ev, time.Now()); err != nil {
		w.t.Fatal(err)
	}
	w.follower.Write([]byte(line[:5])) // an event may come in parts
	w.follower.Write([]byte(line[5:]))
	return line
}

// line is the next event of kube-apiserver.
func (w *world) line(name string) string {
	w.rv++
	return fmt.Sprintf(`{"type":"ADDED","object":{"kind":"ConfigMap","apiVersion":"v1",`+
		`"metadata":{"name":%q,"namespace":"ns","uid":"u","resourceVersion":"%d"},"data":{"d":"1"}}}`+"\n", name, w.rv)
}

// end ends the watch, and returns what was observed.
func (w *world) end() observe.Report {
	synctest.Wait()
	w.follower.End(true)
	time.Sleep(time.Minute)
	synctest.Wait()
	return w.observer.Report()
}

// Each kind of difference is found, at its object and resourceVersions. Nothing else is. c is the third
// of five events.
func TestDifferences(t *testing.T) {
	bookmark := func(rv uint64) string { return proxytest.ConfigMaps.Bookmark(rv, false) }
	// at returns a corruption that puts lines in the place of c.
	at := func(lines func(c string) []string) func(string) []string {
		return func(l string) []string {
			if !strings.Contains(l, `"name":"c"`) {
				return []string{l}
			}
			return lines(l)
		}
	}
	held := ""
	for name, c := range map[string]struct {
		corrupt func(line string) []string
		want    []string
	}{
		"none":         {nil, nil},
		"lost":         {at(func(string) []string { return nil }), []string{"lost ns/c 103 0"}},
		"twice":        {at(func(c string) []string { return []string{c, c} }), []string{"extra ns/c 0 103"}},
		"other bytes":  {at(replace(`"d":"1"`, `"d":"2"`)), []string{"bytes ns/c 103 103"}},
		"another type": {at(replace("ADDED", "MODIFIED")), []string{"bytes ns/c 103 103"}},
		"bookmarks":    {func(l string) []string { return []string{l, bookmark(eventVersion(l))} }, nil},
		"early bookmark": {at(func(c string) []string { return []string{bookmark(103), c} }),
			[]string{"bookmark ns/c 103 103"}},
		"bookmark alone": {at(func(string) []string { return []string{bookmark(103)} }), []string{"lost ns/c 103 0"}},
		"reordered": {func(l string) []string {
			switch eventVersion(l) {
			case 103:
				held = l
				return nil
			case 104:
				return []string{l, held}
			}
			return []string{l}
		}, []string{"reordered ns/c 103 103"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, func(w *world) { w.corrupt = c.corrupt })
				for _, name := range []string{"a", "b", "c", "d", "e"} {
					w.put(name)
					synctest.Wait()
				}
				got := w.end()
				var found []string
				for _, d := range got.Recent {
					found = append(found, fmt.Sprintf("%s %s %d %d", d.Kind, d.Key, d.ResourceVersion, d.CacheVersion))
				}
				proxytest.WantStrings(t, "differences", found, c.want...)
				if equal := 5 - min(1, len(c.want)); len(w.differed) != len(c.want) || int(got.Events) != equal && name != "twice" {
					t.Errorf("%d events, %d calls: %s", got.Events, len(w.differed), got.Verdict)
				}
			})
		})
	}
}

// A process that stands still loses no event: what the cache has not sent then, it may still send.
func TestHalt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const halt = time.Hour
		held, halted := "", false
		w := start(t, func(w *world) {
			w.halts = make(chan time.Duration, 1)
			w.corrupt = func(l string) []string {
				switch eventVersion(l) {
				case 101:
					held = l
					return nil
				case 103: // the cache stands still for a little longer
					halted = true
					time.Sleep(halt + 2*time.Second)
					return []string{held, l}
				}
				return []string{l}
			}
		})
		w.put("a")
		w.put("b")
		synctest.Wait()
		time.Sleep(2 * time.Second)
		w.halts <- halt
		w.put("c")
		time.Sleep(2 * halt)
		got := w.end()
		if len(got.Recent) != 1 || got.Recent[0].Kind != observe.Reordered || !halted || len(w.halts) > 0 {
			t.Errorf("want one event that is reordered: %s %v", got.Verdict, got.Recent)
		}
	})
}

func replace(old, with string) func(string) []string {
	return func(line string) []string { return []string{strings.Replace(line, old, with, 1)} }
}

func eventVersion(line string) uint64 {
	ev, _ := proxytest.ParseEvent(line)
	return ev.RV
}

// Initial events are compared as the state that their bookmark says, whatever came in between. An
// object that the cache lacks is found.
func TestInitialEvents(t *testing.T) {
	for name, want := range map[string]string{"equal": "", "stale": "stale ns/c 103 0"} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, nil)
				a, b := w.put("a"), w.put("b")
				w.follower = w.follow(observe.Read{Watch: true, Initial: true})
				w.follower.Write([]byte(b + a))
				if want == "" {
					w.put("c")
				} else {
					w.follower.Write([]byte(w.line("c")))
					w.cache.Advance(103)
				}
				w.follower.Write([]byte(proxytest.ConfigMaps.Bookmark(103, true)))
				synctest.Wait()
				got := w.end()
				found := ""
				for _, d := range got.Recent {
					found = fmt.Sprintf("%s %s %d %d", d.Kind, d.Key, d.ResourceVersion, d.CacheVersion)
				}
				if found != want || got.Lists != 1 {
					t.Errorf("found %q, want %q: %s", found, want, got.Verdict)
				}
			})
		})
	}
}

// A cache that is listed again shows what it has missed in its own way. That is no difference, and the
// comparison goes on behind it.
func TestRelisted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, nil)
		w.put("a")
		time.Sleep(2 * time.Second)
		var objects []*framing.Object
		for rv := range uint64(3) { // each is changed twice, and the cache sees the second change only
			line := fmt.Sprintf(`{"type":"MODIFIED","object":{"kind":"ConfigMap","apiVersion":"v1",`+
				`"metadata":{"name":"a","namespace":"ns","uid":"u","resourceVersion":"%d"}}}`+"\n", 102+rv)
			w.follower.Write([]byte(line))
			ev, _ := w.scanner.Event([]byte(line))
			objects = []*framing.Object{ev.Object}
		}
		w.rv = 104
		if _, err := w.cache.Replace(objects, 104, time.Now()); err != nil {
			t.Fatal(err)
		}
		w.cache.Advance(108)
		time.Sleep(4 * time.Second)
		w.rv = 110
		w.follower.Write([]byte(proxytest.ConfigMaps.Bookmark(w.rv, false)))
		w.put("b") // the comparison begins anew here
		synctest.Wait()
		w.put("c")
		got := w.end()
		if len(got.Recent) > 0 || got.Events != 4 || got.Skipped["relist"] != 2 {
			t.Errorf("%s %v %v", got.Verdict, got.Recent, got.Skipped)
		}
	})
}

// However much a cache that is listed again has missed, the comparison goes on behind it.
func TestRelistedMuch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const missed = 300
		w := start(t, nil)
		w.put("a")
		time.Sleep(2 * time.Second)
		var last *framing.Object
		for range missed {
			line := strings.Replace(w.line("a"), "ADDED", "MODIFIED", 1)
			w.follower.Write([]byte(line))
			ev, err := w.scanner.Event([]byte(line))
			if err != nil {
				t.Fatal(err)
			}
			last = ev.Object
		}
		if _, err := w.cache.Replace([]*framing.Object{last}, w.rv, time.Now()); err != nil {
			t.Fatal(err)
		}
		time.Sleep(4 * time.Second)
		w.put("b")
		time.Sleep(2 * time.Second)
		w.put("c")
		got := w.end()
		if len(got.Recent) > 0 || got.Events != 3 || got.Skipped["panic"] > 0 || got.Skipped["relist"] != missed {
			t.Errorf("%s %v %v", got.Verdict, got.Recent, got.Skipped)
		}
	})
}

// A watch whose every event differs is something to judge by.
func TestAllDiffer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(w *world) { w.corrupt = replace(`"d":"1"`, `"d":"2"`) })
		w.put("a")
		w.put("b")
		if got := w.end(); got.Events != 0 || !strings.Contains(got.Verdict, ", DIFFERENCES: 2 bytes") {
			t.Errorf("%d events: %s", got.Events, got.Verdict)
		}
	})
}

// A comparison that begins anew does not begin before events that differed: kube-apiserver does not send them again.
func TestAnewBehindDifference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(w *world) { w.corrupt = replace(`"d":"1"`, `"d":"2"`) })
		w.put("a")
		time.Sleep(2 * time.Second)
		synctest.Wait()
		w.corrupt = nil
		w.sub.End(fanout.Ending{Reason: fanout.Evicted})
		time.Sleep(4 * time.Second)
		w.put("b")
		time.Sleep(2 * time.Second)
		if got := w.end(); len(got.Recent) != 1 || got.Recent[0].Kind != observe.Bytes || got.Events != 1 {
			t.Errorf("%s %v", got.Verdict, got.Recent)
		}
	})
}

// A cache may end before it has sent anything, in each encoding.
func TestCacheEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, func(w *world) { w.encoding = framing.Protobuf })
		w.cache.Close(fanout.Ending{Reason: fanout.Gone})
		time.Sleep(2 * time.Second)
		if got := w.end(); len(got.Skipped) != 1 || got.Skipped["unserved"] != 1 {
			t.Errorf("skipped %v", got.Skipped)
		}
	})
}

// A list that differs is not said to lack the objects for which there is no memory.
func TestListWithoutMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const items, item = 2, 64 + len("ns/a")
		body := func(data string) []byte {
			one := `{"metadata":{"name":"%s","namespace":"ns","uid":"u","resourceVersion":"90"},"data":{"d":"` + data + `"}}`
			return fmt.Appendf(nil, `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"100"},"items":[`+
				one+","+one+"]}", "a", "b")
		}
		w := start(t, nil)
		var holders []exchange.Follower
		for range 63 { // each holds 16 KiB, and what is written to it
			f := w.observer.Follow(observe.Client{}, observe.Observe, observe.Read{Watch: true,
				Open: func(ctx context.Context, _ string) (observe.Side, string) { <-ctx.Done(); return nil, "seeded" }})
			f.Began(http.Header{"Content-Type": {"application/json"}})
			holders = append(holders, f)
		}
		synctest.Wait()
		w.list = func() []byte {
			for i, f := range holders {
				n := 1 << 20
				if i == 0 {
					n -= items * item
				}
				f.Write(make([]byte, n))
			}
			return body("2")
		}
		f := w.follow(observe.Read{ResourceVersion: 100})
		f.Write(body("1"))
		f.End(true)
		synctest.Wait()
		got := w.observer.Report()
		if len(got.Recent) != 1 || got.Recent[0].Kind != observe.Bytes || got.Recent[0].Key != "" || got.Lists != 1 {
			t.Errorf("%s %v %v", got.Verdict, got.Recent, got.Skipped)
		}
	})
}

// An observer that panics, is late, or may hold nothing ends alone, and says why.
func TestEndsAlone(t *testing.T) {
	for name, do := range map[string]func(*world){
		"panic": func(w *world) {
			f := w.observer.Follow(observe.Client{}, observe.Observe, observe.Read{Watch: true,
				Open: func(context.Context, string) (observe.Side, string) { panic("seeded") }})
			f.Began(http.Header{})
			f.Write([]byte("x"))
			f.End(true)
		},
		"behind": func(w *world) { w.follower.Write(make([]byte, 2<<20)) },
		"memory": func(w *world) {
			for range 65 {
				w.follow(observe.Read{Watch: true}).Write(make([]byte, 1<<20))
			}
		},
		"too_many": func(w *world) {
			for range 1000 {
				w.follow(observe.Read{Watch: true})
			}
		},
		"broken":    func(w *world) { w.follower.Write([]byte("no event\n")); w.put("a") },
		"websocket": func(w *world) { w.follow(observe.Read{Watch: true, Unlike: observe.Socket}) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := start(t, nil)
				do(w)
				time.Sleep(2 * time.Second)
				if got := w.observer.Report(); got.Skipped[name] == 0 {
					t.Errorf("skipped %v", got.Skipped)
				}
			})
		})
	}
}

// A watch ends as soon as its client has another mode, and only then.
func TestSetRules(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := start(t, nil)
		none := func() map[schema.GroupResource]uint64 { return nil }
		client := observe.Client{User: "system:serviceaccount:team:app", UserAgent: "app/1 (linux)", Slot: 30,
			Resource: schema.GroupResource{Group: "apps", Resource: "deployments"}}
		for _, c := range []struct {
			rule observe.Rule
			fits bool
		}{
			{observe.Rule{}, true},
			{observe.Rule{Namespaces: []observe.Namespace{"other", "team"}}, true},
			{observe.Rule{Namespaces: []observe.Namespace{"other"}}, false},
			{observe.Rule{Users: []observe.User{"system:serviceaccount:team:app"}}, true},
			{observe.Rule{Users: []observe.User{"app"}}, false},
			{observe.Rule{UserAgents: []observe.UserAgent{"app/"}}, true},
			{observe.Rule{UserAgents: []observe.UserAgent{"kubelet"}}, false},
			{observe.Rule{Resources: []view.Resource{"deployments.apps"}}, true},
			{observe.Rule{Resources: []view.Resource{"deployments"}}, false},
			{observe.Rule{Percent: 31}, true},
			{observe.Rule{Percent: 30}, false},
			{observe.Rule{Percent: 31, Resources: []view.Resource{"pods"}}, false},
		} {
			f := w.observer.Follow(client, observe.Serve, observe.Read{Watch: true})
			recall := f.Began(http.Header{})
			c.rule.Mode = observe.Off
			ends := w.observer.SetRules(observe.Rules{c.rule, {Mode: observe.Serve}}, none)
			for _, end := range ends {
				end()
			}
			moved := false
			select {
			case <-recall:
				moved = true
			default:
			}
			if moved != c.fits {
				t.Errorf("%+v: ended %t, want %t", c.rule, moved, c.fits)
			}
			f.End(true)
			w.observer.SetRules(nil, none)
		}
	})
}
