package admission

import (
	"time"

	"github.com/watchfan/watchfan/proxy/base/account"
)

// Reliever gives memory back.
type Reliever interface {
	// Relieve cuts the source that holds most of some kinds, if that is at least so many bytes. It
	// returns the bytes.
	Relieve(least int64, some ...account.Kind) int64
	// StopUnused stops the lanes without clients, and returns their number.
	StopUnused() int
	// Forget forgets what can be computed again.
	Forget()
}

// relief gives memory back while memory is short. It does one of these at a look, and the next look
// shows whether that has helped:
//
//	the source that holds most of what passes is cut (package account), if that is 1% of the limit
//	lanes without clients stop
//	compressed lists and indexes are forgotten
//	the source that alone uses most copies of resources loses them; its requests pass through
//	from 90%: the source that alone uses most lanes loses them
//
// What is given back is freed a moment later, by the end of a connection or a lane, and counts until
// it is collected. Without allocations no collection starts. So one runs before the look that
// follows, and only then, because it takes 0.1 s for some hundred MiB. A source that comes back at
// once, to be cut again, does not keep relief from the rest.
//
// Memory may be short for long, with nothing to give back but what is needed again at once. So lists
// and indexes are forgotten when a level is reached, and then ever more rarely.
type relief struct {
	from    Reliever
	least   int64         // bytes, of a source that is cut
	freed   bool          // something has been given back since the last collection
	cut     bool          // the last look cut what passes
	reached memoryLevel   // the highest level since memory was enough
	forgot  time.Time     // when lists and indexes were last forgotten
	wait    time.Duration // from then to the next time
}

const (
	// forgetFirst and forgetMost bound the time between two times that lists and indexes are
	// forgotten at the same level. It doubles each time. Memory must have been enough for as long
	// before it is the first again.
	forgetFirst = 5 * time.Second
	forgetMost  = 10 * time.Minute
)

// at gives memory back at a level. stopped is how many lanes it stopped, and spent says that nothing is
// left that may help.
func (r *relief) at(level memoryLevel) (stopped int, spent bool) {
	if level < memoryShort {
		r.cut = false
		if time.Since(r.forgot) >= r.wait {
			r.reached, r.wait = memoryEnough, 0
		}
		return 0, false
	}
	again := r.cut
	r.cut = r.from.Relieve(r.least, account.Passing()...) > 0
	did := r.cut
	if again || !r.cut {
		var rest bool
		stopped, rest = r.rest(level)
		did, spent = did || rest, !rest
	}
	r.freed = r.freed || did
	return stopped, spent
}

// rest gives back one thing that does not pass, and reports whether there was one.
func (r *relief) rest(level memoryLevel) (stopped int, did bool) {
	if stopped = r.from.StopUnused(); stopped > 0 {
		return stopped, true
	}
	if level > r.reached || time.Since(r.forgot) >= r.wait {
		r.from.Forget()
		r.reached = max(r.reached, level)
		r.forgot, r.wait = time.Now(), min(max(2*r.wait, forgetFirst), forgetMost)
		return 0, true
	}
	return 0, r.from.Relieve(r.least, account.Copies) > 0 ||
		level >= memoryFull && r.from.Relieve(r.least, account.Lanes) > 0
}
