package chaos_test

import (
	"fmt"
	"math/rand/v2"
	"slices"
)

// soakNodes is how many nodes the objects of a soak are on.
const soakNodes = 50

// nodeLabel is the label with an object's node.
func nodeLabel() labelDrawn {
	l := labelDrawn{name: "node"}
	for i := range soakNodes {
		l.values = append(l.values, fmt.Sprint("n", i))
	}
	return l
}

// waysIn20 has each way as often as it is taken by 20 clients.
var waysIn20 = slices.Concat(slices.Repeat([]int{http2Way}, 9), slices.Repeat([]int{plainWay, tokenWay}, 3),
	slices.Repeat([]int{socketWay, secureSocketWay}, 2), []int{certificateWay})

// watch makes the watchers, and some that are straight at kube-apiserver, to show which bytes to
// expect.
func (k *soak) watch() {
	k.ways = make(map[*watchfan][]way)
	for _, p := range k.replicas {
		k.ways[p] = k.waysOf(p)
	}
	rng := rand.New(rand.NewPCG(*seed, 3))
	for i := range *watches {
		k.watchers = append(k.watchers, k.newClient(i, rng))
	}
	for _, f := range allForms {
		for _, sel := range []filter{allFilters[0], allFilters[8]} {
			k.watchers = append(k.watchers, k.newWatcher(len(k.watchers), k.straight.client(), f, sel, byList, steady))
		}
	}
}

// newClient returns watcher i. It begins at one replica, and its next stream may be at the other. The
// first eight are those that recover waits for.
func (k *soak) newClient(i int, rng *rand.Rand) *watcher {
	m, sel := mannerOf(i), k.drawFilter(rng)
	if i < 8 || m == slow || m == stalling { // of a few objects these would notice nothing
		sel = allFilters[i/8%len(allFilters)]
	}
	kind, zipped := waysIn20[rng.IntN(20)], rng.IntN(3) == 0
	connect := func(p *watchfan) *client {
		w := k.ways[p][kind]
		w.gzip = zipped && !w.socket
		if m == slow || m == stalling {
			w.window = 4096
		}
		return k.connect(w)
	}
	begin := []beginning{byList, byWatchList, byStaleList, byStaleWatch}[rng.IntN(4)]
	if rng.IntN(50) == 0 {
		begin = byForgetting
	}
	f := allForms[[]int{0, 0, 0, 1, 1, 1, 1, 2, 3}[rng.IntN(9)]]
	here, there := k.replicas[i%2], k.replicas[1-i%2]
	w := k.newWatcher(i, connect(here), f, sel, begin, m)
	w.at, w.cursor.relists = here, here.relists
	w.elsewhere = &server{connect(there), there}
	return w
}

// mannerOf is how watcher i reads: of 100, three come and go, one stops reading now and then, and one
// is slow.
func mannerOf(i int) manner {
	switch i % 100 {
	case 97, 98, 99:
		return leaving
	case 96:
		return stalling
	case 95:
		return slow
	}
	return steady
}

// drawFilter draws what a watcher follows. As in a cluster, most follow one object or one node, and so
// see few events.
func (k *soak) drawFilter(rng *rand.Rand) filter {
	resource := "configmaps"
	if rng.IntN(5) == 0 {
		resource = "widgets"
	}
	switch n := rng.IntN(100); {
	case n < 2:
		return allFilters[rng.IntN(len(allFilters))]
	case n < 32:
		return newFilter(resource, "", fmt.Sprintf("node=n%d", rng.IntN(soakNodes)), "")
	}
	return newFilter(resource, namespaces[rng.IntN(len(namespaces))], "",
		"metadata.name="+objectName(rng.IntN(writers), rng.IntN(k.work.names)))
}
