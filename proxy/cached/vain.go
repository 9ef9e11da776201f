package cached

import (
	"context"
	"io"
	"sync"
	"time"

	"github.com/VictoriaMetrics/metrics"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/auth"
	"github.com/watchfan/watchfan/proxy/fairness"
	"github.com/watchfan/watchfan/proxy/lane"
	"github.com/watchfan/watchfan/proxy/request"
)

// vainWait is how long a read has waited that counts as one that has waited in vain. A
// kube-apiserver that is well answers all questions about a read within it.
const vainWait = time.Second

// vainReads lets reads pass through that have waited in vain: for a review, for kube-apiserver's
// answers about their resource, for a lane, for a proof or for history. Thousands may have waited
// for the same, and kube-apiserver is slow or away, or else the wait would have ended well. So they
// take turns: lane.MostThrough of each resource at a time, fairly among users. A read that gets no
// turn in time is told to try again (429). Its methods may be called from any goroutine.
type vainReads struct {
	ctx     context.Context // ends all waits
	refused *metrics.Counter

	mu    sync.Mutex
	lines map[schema.GroupVersionResource]*vainLine // those with reads
}

// vainLine is the reads of one resource.
type vainLine struct {
	queue *fairness.Queue
	reads int // that have a turn or wait for one; guarded by vainReads.mu
}

func newVainReads(ctx context.Context, refused *metrics.Counter) *vainReads {
	return &vainReads{ctx: ctx, refused: refused, lines: make(map[schema.GroupVersionResource]*vainLine)}
}

// inVain reports whether r passes through, for a reason, because a wait has brought nothing. A proof counts
// however soon it has failed, because reads share it. A read of a resourceVersion far in the future
// has not waited here: kube-apiserver makes it wait. A read whose lane lets it through is one of a few
// already.
func (r *read) inVain(why request.Reason) bool {
	switch why {
	case request.Freshness:
		return !r.through && !r.lane.Uncached() && (r.ResourceVersion == "" || time.Since(r.arrived) >= vainWait)
	case request.Form:
		return r.listsTables() && time.Since(r.arrived) >= vainWait // for a list that others share
	case request.NotAllowed, request.Aggregated, request.Resource, request.Definition, request.NoLane, request.LaneBound,
		request.LaneFilling, request.History:
		return !r.through && time.Since(r.arrived) >= vainWait
	}
	return false
}

// take waits for the turn of a read that has waited in vain. The caller passes the read through,
// and closes turn when the read has been answered. refused is the answer to a read that gets no
// turn.
func (v *vainReads) take(r *read, patience time.Duration) (turn io.Closer, refused *metav1.Status) {
	line := v.join(r.GVR)
	seat := line.queue.Seat(auth.FlowOf(r.id, r.conn.RemoteAddr()), max(1, patience), r.conn.Left, r.conn.EndArrival)
	if !seat.Begin() {
		v.leave(r.GVR, line)
		return nil, seat.Refused
	}
	return lane.NewSlot(r.Verb == "watch", func() {
		seat.Give()
		v.leave(r.GVR, line)
	}), nil
}

// join counts a read in the line of its resource.
func (v *vainReads) join(gvr schema.GroupVersionResource) *vainLine {
	v.mu.Lock()
	defer v.mu.Unlock()
	line := v.lines[gvr]
	if line == nil {
		line = &vainLine{queue: fairness.New(v.ctx, lane.MostThrough, fairness.Purpose{
			Message: "kube-apiserver is slow to answer this proxy about " + request.ResourceText(gvr),
			Refused: v.refused,
		})}
		v.lines[gvr] = line
	}
	line.reads++
	return line
}

func (v *vainReads) leave(gvr schema.GroupVersionResource, line *vainLine) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if line.reads--; line.reads == 0 {
		delete(v.lines, gvr)
	}
}
