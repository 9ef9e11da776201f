package watchers

import (
	"fmt"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/gate/consumers"
)

// Consumer returns whom the watch counts for.
func (w *Watcher) Consumer() consumers.Name {
	return consumers.NameOf(w.User.Value(), w.UserAgent.Value())
}

// Delivered returns what the watch was sent. It is called after its end.
func (w *Watcher) Delivered() consumers.Delivered {
	return delivered(w.Sub.Delivered())
}

func delivered(events, bytes uint64, writes uint32) consumers.Delivered {
	return consumers.Delivered{Events: events, Bytes: bytes, Writes: uint64(writes)}
}

// Shared is 1 if others may share the connection of the watch.
func (w *Watcher) Shared() int {
	if w.Protocol == OverHTTP2 {
		return 1
	}
	return 0
}

// patience is how long a shard may take to say what it has delivered.
const patience = time.Second

// manyCopies is how many watches of the same on one connection are a fault.
const manyCopies = 2

// copies are the watches of the same on one connection of HTTP/2: informers of one process.
type copies struct {
	of                 fault
	client             string
	labels, fields, in string
}

// fault is of a consumer, with the watches of a resource.
type fault struct {
	consumer consumers.Name
	what     string
}

// ByConsumer returns the open watches of each consumer. It asks all shards.
func (ws *Register) ByConsumer(flusher *fanout.Flusher) map[consumers.Name]consumers.Watches {
	open := ws.All()
	subs := make([]*fanout.Subscription, len(open))
	for i, w := range open {
		subs[i] = &w.Sub
	}
	all := make(map[consumers.Name]consumers.Watches)
	same, worst := make(map[copies]int), make(map[fault]int)
	for i, st := range flusher.Inspect(subs, patience) {
		w := open[i]
		name, shared := w.Consumer(), w.Shared()
		if shared == 1 {
			of, scope := fault{name, w.Lane.GVR.GroupResource().String()}, w.Scope.Value()
			c := copies{of, w.Conn.RemoteAddr().String(), scope.Labels, scope.Fields, scope.Namespace + "/" + scope.Name}
			same[c]++
			worst[of] = max(worst[of], same[c])
		}
		of := all[name]
		of.Open++
		of.Sent[shared] = of.Sent[shared].Plus(delivered(st.Events, st.Bytes, st.Writes))
		all[name] = of
	}
	for f, n := range worst {
		if n < manyCopies {
			continue
		}
		w := all[f.consumer]
		w.Copies = append(w.Copies,
			fmt.Sprintf("%d informers for %s: one connection has as many watches of the same", n, f.what))
		all[f.consumer] = w
	}
	return all
}
