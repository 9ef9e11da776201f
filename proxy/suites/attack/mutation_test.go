package attack_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// mutation is a mistake that a server may make in a stream of updates.
type mutation struct {
	name  string
	do    func(stream []beat) []beat
	wrong string // part of the client's error; "" if there is none
}

var mutations = []mutation{
	{"nothing", func(b []beat) []beat { return b }, ""},
	{"an event is missing", func(b []beat) []beat { return slices.Delete(b, 3, 4) }, "lost"},
	{"an event comes twice", func(b []beat) []beat { return slices.Insert(b, 3, b[3]) }, "repeated"},
	{"an event comes again later", func(b []beat) []beat { return slices.Insert(b, 6, b[2]) }, "out of order"},
	{"two events of an object change places", func(b []beat) []beat { b[3], b[5] = b[5], b[3]; return b }, "lost"},
	{"an event is of another tenant", func(b []beat) []beat { b[4].object = beatsOfTenant; return b }, "an object of " + tenantName(1)},
	{"an event is of another resource", func(b []beat) []beat { b[4].object = 3; return b }, "not of"},
}

// stream returns updates of two ConfigMaps of the first tenant, in turn, behind state.
func stream() (state, stream []beat) {
	state = []beat{{0, 7}, {1, 7}, {2, 7}}
	for n := range uint64(5) {
		stream = append(stream, beat{0, 8 + n}, beat{1, 8 + n})
	}
	return state, stream
}

func newFollower() *follower {
	return &follower{scope: scope{tenant: tenantName(0), resource: "configmaps"}, objects: newObjects()}
}

func noticed(err error, wrong string) bool {
	return wrong == "" && err == nil || wrong != "" && err != nil && strings.Contains(err.Error(), wrong)
}

// TestFollowerNotices: a follower begins with a right state alone, and notices that the last event is lost.
func TestFollowerNotices(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		state []beat
		wrong string
	}{
		"right":              {[]beat{{0, 7}, {1, 8}, {2, 7}}, ""},
		"stale":              {[]beat{{0, 7}, {1, 6}, {2, 7}}, "stale"},
		"an object is gone":  {[]beat{{0, 7}, {1, 7}}, "missing"},
		"an object is twice": {[]beat{{0, 7}, {1, 7}, {2, 7}, {0, 7}}, "twice"},
		"of another tenant":  {[]beat{{0, 7}, {1, 7}, {2, 7}, {beatsOfTenant, 1}}, "not of"},
	} {
		if err := newFollower().begin(c.state, map[int]uint64{0: 7, 1: 7, 2: 7}); !noticed(err, c.wrong) {
			t.Errorf("state %s: got %v, want %q", name, err, c.wrong)
		}
	}
	f := newFollower()
	f.last = map[int]uint64{0: 7, 1: 7, 2: 7}
	before := f.behind()
	f.objects[1].acknowledge(8)
	if behind := f.behind(); before != nil || behind == nil {
		t.Errorf("before a lost last event: %v, behind it: %v", before, behind)
	}
}

// TestWatcherNotices: a watcher accepts what a correct server sends, and nothing else, in every form that
// watchers read.
func TestWatcherNotices(t *testing.T) {
	t.Parallel()
	for _, m := range mutations {
		for _, protobuf := range []bool{false, true} {
			state, changes := stream()
			f := newFollower()
			s := &suite{objects: f.objects}
			s.phase.Store(newPhase("test", time.Minute))
			w := &watcher{honest: honest{suite: s, client: newClient(way{tenant: tenantName(0)})}, follower: f, protobuf: protobuf}
			err := w.read(bytes.NewReader(scripted(state, m.do(changes), protobuf)), f.floor())
			if err == io.EOF {
				err = nil
			}
			if !noticed(err, m.wrong) {
				t.Errorf("%s, protobuf %v: got %v, want %q", m.name, protobuf, err, m.wrong)
			}
		}
	}
}

// scripted is the body of one watch: initial events, the bookmark behind them, and changes.
func scripted(state, changes []beat, protobuf bool) (body []byte) {
	objects := newObjects()
	send := func(typ, annotations string) {
		object := fmt.Appendf(nil, `{"metadata":{"resourceVersion":"1","annotations":{%s}}}`, annotations)
		if !protobuf {
			body = fmt.Appendf(body, "{\"type\":%q,\"object\":%s}\n", typ, object)
			return
		}
		frame, _ := (&metav1.WatchEvent{Type: typ, Object: runtime.RawExtension{Raw: object}}).Marshal() // it never fails
		body = append(binary.BigEndian.AppendUint32(body, uint32(len(frame))), frame...)
	}
	update := func(typ string, b beat) {
		o := objects[b.object]
		send(typ, fmt.Sprintf(`"owner":%q,"beat":%q`, ownerMark(o.resource, o.tenant), o.mark(b.n)))
	}
	for _, b := range state {
		update("ADDED", b)
	}
	send("BOOKMARK", fmt.Sprintf(`%q:"true"`, initialEnd))
	for _, b := range changes {
		update("MODIFIED", b)
	}
	return body
}

// goodVerdict is the verdict of a run in which nothing went wrong.
func goodVerdict(strict bool) *verdict {
	v := &verdict{strict: strict, quiet: newPhase("quiet", time.Minute), attacked: newPhase("attack", time.Minute),
		attacks: []string{"a", "b"}, ledger: newLedger()}
	for _, kind := range cachedOperations {
		for range 100 {
			v.quiet.measured(kind, 50*time.Millisecond)
			v.attacked.measured(kind, 100*time.Millisecond)
		}
	}
	for range 20 {
		v.attackedLevels = append(v.attackedLevels, level{"resident": 300e6, "heap": 200e6})
	}
	v.ledger.note("a", "200")
	v.ledger.note("b", "401")
	return v
}

// TestVerdictNotices: a run passes if nothing is wrong, and fails if one thing is. Some things fail
// only a long run.
func TestVerdictNotices(t *testing.T) {
	t.Parallel()
	took := func(operation string, d time.Duration) func(*verdict) {
		return func(v *verdict) {
			for range 10 {
				v.attacked.measured(operation, d)
			}
		}
	}
	grown := func(name string, factor float64) func(*verdict) {
		return func(v *verdict) {
			for _, l := range v.attackedLevels[10:] {
				l[name] *= factor
			}
		}
	}
	faults := func(n int, operation, fault string) func(*verdict) {
		return func(v *verdict) {
			for range n {
				v.attacked.failed(operation, fault, "")
			}
		}
	}
	for name, c := range map[string]struct {
		spoil         func(v *verdict)
		short, strict bool // it fails
	}{
		"nothing":                           {func(*verdict) {}, false, false},
		"events four times as slow":         {took(eventOperation, 210*time.Millisecond), false, true},
		"gets that stall for two seconds":   {took(getOperation, 2*time.Second), true, true},
		"memory that grows by half":         {grown("resident", 1.5), false, true},
		"a heap that grows a hundred times": {grown("heap", 100), true, true},
		"a 503":                             {faults(1, largeWriteOperation, "503"), true, true},
		"a 503 in both phases":              {func(v *verdict) { faults(1, "a", "503")(v); v.quiet.failed("a", "503", "") }, false, false},
		"a 503 of kube-apiserver":           {faults(1, updateOperation, "503"), false, false},
		"three 429":                         {faults(3, getOperation, "429"), false, false},
		"four 429":                          {faults(4, getOperation, "429"), true, true},
		"a 429 that does not say when":      {faults(1, getOperation, "429 without a Retry-After"), true, true},
		"an attack that did not happen":     {func(v *verdict) { v.attacks = append(v.attacks, "c") }, true, true},
		"an attack that reached no server":  {func(v *verdict) { v.attacks = append(v.attacks, "c"); v.ledger.note("c", notReached) }, true, true},
		"a breach":                          {func(v *verdict) { v.ledger.note("a", breach+"a secret") }, true, true},
		"a violation":                       {func(v *verdict) { v.violations = []string{"stale"} }, true, true},
		"connections that stay":             {func(v *verdict) { v.returned = errors.New("400 connections") }, true, true},
		"a watcher that waits":              {func(v *verdict) { v.settled = errors.New("one update") }, true, true},
		"a panic in the log":                {func(v *verdict) { v.stopped = errors.New("panic:") }, true, true},
	} {
		for _, strict := range []bool{false, true} {
			v := goodVerdict(strict)
			c.spoil(v)
			if wrong, fails := v.wrong(), strict && c.strict || !strict && c.short; (len(wrong) > 0) != fails {
				t.Errorf("%s, strict %v: got %q", name, strict, wrong)
			}
		}
	}
}

// TestLevel: a server that keeps connections, goroutines or files does not return to the quiet
// level.
func TestLevel(t *testing.T) {
	t.Parallel()
	quiet := level{"connections": 200, "goroutines": 300, "files": 250}
	for name := range quiet {
		now := maps.Clone(quiet)
		now[name] += 30
		few := now.within(quiet)
		if now[name] *= 2; few != nil || now.within(quiet) == nil {
			t.Errorf("%s: a few more are wrong: %v; or twice as many are not", name, few)
		}
	}
}
