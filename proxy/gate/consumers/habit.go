package consumers

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/gate/request"
)

// habit is how often a consumer has read a resource, and how.
type habit struct {
	gets, lists, watches uint32
	newest               uint32 // lists without a resourceVersion
	json                 uint32 // lists and watches that accept JSON, and no protobuf
	whole, metadata      uint32 // lists and watches, by what of objects they want
}

func (h habit) minus(g habit) habit {
	return habit{h.gets - g.gets, h.lists - g.lists, h.watches - g.watches, h.newest - g.newest, h.json - g.json,
		h.whole - g.whole, h.metadata - g.metadata}
}

func (h habit) reads() uint32 { return h.gets + h.lists + h.watches }

const (
	// habitWindow is how long habits are observed: for one to two windows.
	habitWindow = 5 * time.Minute
	// mostHabits bounds the resources of one consumer whose reads are counted. The resource that is read
	// least makes way.
	mostHabits = 8
)

// noteLocked counts a read among the habits.
func (c *Consumer) noteLocked(req *request.Request, now time.Time) {
	verb := req.MetricVerb()
	if verb == "other" || req.AsTable() {
		return
	}
	h := c.habitLocked(request.Shown(req.GVR.GroupResource().String()), now)
	if verb == "get" {
		h.all.gets++
		return
	}
	if verb == "list" {
		h.all.lists++
		if req.Uncacheable == "" && req.ResourceVersion == "" && req.ContinueToken == "" {
			h.all.newest++
		}
	} else {
		h.all.watches++
	}
	whole, protobuf := true, false
	for _, a := range req.Accepts {
		whole = whole && a.Metadata == ""
		protobuf = protobuf || a.Encoding != framing.JSON
	}
	if whole {
		h.all.whole++
	} else {
		h.all.metadata++
	}
	if !protobuf && offersProtobuf(req.GVR.Group) && len(req.Accepts) > 0 {
		h.all.json++
	}
}

// habitLocked returns the habit about a resource.
func (c *Consumer) habitLocked(resource string, now time.Time) *recent[habit] {
	h := c.habits[resource]
	if h == nil {
		if len(c.habits) >= mostHabits {
			delete(c.habits, slices.MinFunc(slices.Collect(maps.Keys(c.habits)), func(a, b string) int {
				return cmp.Compare(c.habits[a].all.reads(), c.habits[b].all.reads())
			}))
		}
		if c.habits == nil {
			c.habits = make(map[string]*recent[habit])
		}
		h = new(recent[habit])
		h.turn(now, habitWindow)
		c.habits[strings.Clone(resource)] = h // it may be a slice of a request's line
	}
	return h
}

// offersProtobuf reports whether kube-apiserver serves the resources of a group as protobuf: it does for
// built-in ones. A group with a dot that is not among these may be of custom resources, which have none.
func offersProtobuf(group string) bool {
	name, isKubernetes := strings.CutSuffix(group, ".k8s.io")
	return !strings.Contains(group, ".") || isKubernetes && slices.Contains([]string{"admissionregistration",
		"apiextensions", "authentication", "authorization", "certificates", "coordination", "discovery", "events",
		"flowcontrol.apiserver", "networking", "node", "rbac.authorization", "resource", "scheduling", "storage"}, name)
}

const (
	// leastRepeats is how often each client must have done the same for it to be a habit.
	leastRepeats = 3
	// slowest is the longest time between two lists of a client that a watch would save.
	slowest = 10 * time.Minute
	// manyGets is how many gets of one resource a client makes in a minute, at least, that a watch would save.
	manyGets = 30
)

// Faults says in words what a consumer does that costs more than it must, the costliest resource first.
// It is what the requests themselves show. Whether a program reads no more than the metadata of the objects
// that it gets is not among that.
func (c *Consumer) faultsLocked(now time.Time) (faults []string) {
	type about struct {
		resource string
		habit
		window time.Duration
	}
	var all []about
	for resource, h := range c.habits {
		then, passed := h.over(now)
		all = append(all, about{resource, h.all.minus(then), max(passed, time.Second)})
	}
	slices.SortFunc(all, func(a, b about) int {
		return cmp.Or(cmp.Compare(b.lists, a.lists), cmp.Compare(b.reads(), a.reads()), strings.Compare(a.resource, b.resource))
	})
	clients := max(1, estimateClients(&c.clients[0], &c.clients[1]))
	for _, h := range all {
		faults = append(faults, h.faults(h.resource, h.window, clients)...)
	}
	return append(faults, c.crowded...)
}

// faults says what a habit that so many clients had in a window costs more than it must.
func (h habit) faults(resource string, window time.Duration, clients float64) (faults []string) {
	add := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	every := func(n uint32) time.Duration { return time.Duration(float64(window) * clients / float64(max(n, 1))) }
	if each := float64(h.lists) / clients; each >= leastRepeats && every(h.lists) <= slowest {
		switch {
		case h.watches == 0:
			add("lists %s every %s where a watch would do", resource, roughly(every(h.lists)))
		case each >= leastRepeats+float64(h.watches)/clients:
			add("lists %s every %s beside its watch", resource, roughly(every(h.lists)))
		}
	}
	if h.lists >= leastRepeats && h.newest*2 > h.lists {
		add("no resourceVersion: %d of %d lists of %s ask for the newest state, which kube-apiserver must prove",
			h.newest, h.lists, resource)
	}
	if minutes := window.Minutes(); h.watches == 0 && float64(h.gets)/clients >= manyGets*max(1, minutes) {
		add("gets single %s %.3g times a second where a watch would do", resource, float64(h.gets)/window.Seconds())
	}
	if h.whole > 0 && h.metadata > 0 {
		add("reads %s whole and their metadata too", resource)
	}
	if n := h.lists + h.watches; h.json > 0 && h.json*2 > n {
		add("decodes JSON of %s where protobuf is offered", resource)
	}
	return faults
}

// roughly is a duration with two digits.
func roughly(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(10 * time.Millisecond).String()
	case d < 2*time.Minute:
		return fmt.Sprintf("%.2g s", d.Seconds())
	}
	return fmt.Sprintf("%.2g min", d.Minutes())
}
