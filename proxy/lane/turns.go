package lane

import (
	"context"
	"sync"
	"time"
)

// turns bounds how many lanes are listed at a time. After an outage of kube-apiserver, or of its
// etcd, all have to be at once, and it would have to hold and encode all of them.
type turns chan struct{}

// ListsAtOnce is how many that are. Most lists take milliseconds.
const ListsAtOnce = 4

func newTurns() turns { return make(turns, ListsAtOnce) }

// turnTimeout is how long a turn lasts at most. A list that takes longer goes on, but others no
// longer wait for it: a resource whose conversion webhook does not answer must not keep the rest
// from being listed.
const turnTimeout = 5 * time.Second

// take waits for a turn, which ends with the first call of done.
func (t turns) take(ctx context.Context) (done func(), err error) {
	select {
	case t <- struct{}{}:
		give := sync.OnceFunc(func() { <-t })
		late := time.AfterFunc(turnTimeout, give)
		return func() { late.Stop(); give() }, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}
