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
	consumer           consumers.Name
	client, what       string
	labels, fields, in string
}

// ByConsumer returns the open watches of each consumer. It asks all shards.
func (ws *Register) ByConsumer(flusher *fanout.Flusher) map[consumers.Name]consumers.Watches {
	open := ws.All()
	subs := make([]*fanout.Subscription, len(open))
	for i, w := range open {
		subs[i] = &w.Sub
	}
	all, same := make(map[consumers.Name]consumers.Watches), make(map[copies]int)
	for i, st := range flusher.Inspect(subs, patience) {
		w := open[i]
		name, shared := w.Consumer(), w.Shared()
		if shared == 1 {
			scope := w.Scope.Value()
			same[copies{name, w.Conn.RemoteAddr().String(), w.Lane.GVR.GroupResource().String(), scope.Labels,
				scope.Fields, scope.Namespace + "/" + scope.Name}]++
		}
		of := all[name]
		of.Open++
		of.Sent[shared] = of.Sent[shared].Plus(delivered(st.Events, st.Bytes, st.Writes))
		all[name] = of
	}
	addCopies(all, same)
	return all
}

// addCopies adds the faults, for each resource the worst.
func addCopies(all map[consumers.Name]consumers.Watches, same map[copies]int) {
	type of struct {
		consumer consumers.Name
		what     string
	}
	worst := make(map[of]int)
	for c, n := range same {
		if n >= manyCopies {
			worst[of{c.consumer, c.what}] = max(worst[of{c.consumer, c.what}], n)
		}
	}
	for o, n := range worst {
		w := all[o.consumer]
		w.Copies = append(w.Copies,
			fmt.Sprintf("%d informers for %s: one connection has as many watches of the same", n, o.what))
		all[o.consumer] = w
	}
}
