package lane

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const (
	// diskEvery is how long what is to be written to --cache-dir waits at most.
	diskEvery = time.Second
	// diskRetry is the pause before a file is begun after one has failed.
	diskRetry = 30 * time.Second
	// mostUnwritten is how many bytes of a lane wait for the disk before its subscription is blocked.
	mostUnwritten = 1 << 20
	// fileGrowth is by how much a file grows, beside the size of its initial events, before another is begun.
	fileGrowth = 4 << 20
)

// keepOnDisk writes what the lane has to --cache-dir until ctx ends: a subscription like a client's goes to
// a file. A disk that is slow makes it a slow client, and nobody waits.
func (l *Lane) keepOnDisk(ctx context.Context) {
	select {
	case <-l.Filled():
	case <-ctx.Done():
	}
	for ctx.Err() == nil {
		err := l.writeFile(ctx)
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errNotKept):
			exchange.Sleep(ctx, diskRetry)
		case err != nil:
			l.Log.Warn("The cache is not kept on disk", "err", err, "retryIn", diskRetry)
			exchange.Sleep(ctx, diskRetry)
		default:
			exchange.Sleep(ctx, diskEvery)
		}
	}
}

// errNotKept says that the lane's content is of no use to another start now.
var errNotKept = errors.New("upstream is away, does not stream lists, or does not say which cluster it is")

// writeFile writes one file, until another should be begun.
func (l *Lane) writeFile(ctx context.Context) error {
	build, ok := l.Seeds()
	if !ok || !l.WatchList() || !l.Cache.HasBookmarks() {
		return errNotKept
	}
	siblings := l.lanes.cfg.Siblings
	identity, err := siblings.Identity(ctx, build)
	if err != nil {
		return errNotKept
	}
	sub, err := l.Cache.Subscribe(fanout.Request{Filter: fanout.Everything, Start: fanout.FromSnapshot, Bookmarks: true,
		EndBookmark: true, Timeout: 365 * 24 * time.Hour, Beside: true})
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	defer sub.End(fanout.Ending{Reason: fanout.Gone})
	k := &diskSink{wake: make(chan struct{}, 1)}
	l.lanes.cfg.Flusher.Start(sub, k)
	file, err := siblings.Disk.Create(l.Collection.File(), identity)
	if err != nil {
		return err
	}
	tick := time.NewTicker(diskEvery)
	defer tick.Stop()
	var initial int64 // bytes; 0 until the file has all initial events
	for over := false; err == nil && !over && (initial == 0 || file.Size() < 2*initial+fileGrowth); {
		select {
		case <-k.wake:
		case <-tick.C:
		case <-ctx.Done():
		}
		var events []event
		events, over = k.take()
		over = over || ctx.Err() != nil
		for _, e := range events {
			if _, err = file.Write(e.first); err == nil {
				_, err = file.Write(e.second)
			}
			if err == nil && initial == 0 && framing.IsBookmark(l.Encoding, e.first) {
				err = file.Publish()
				initial = file.Size()
			}
			if err != nil {
				break
			}
		}
		k.written(err)
		if err == nil {
			err = file.Flush()
		}
	}
	return errors.Join(err, file.Close())
}

// event is an event, with the prefix of its encoding, in one part or two, which the cache shares.
type event struct{ first, second []byte }

// diskSink takes what a client would be sent. It implements [fanout.Sink].
type diskSink struct {
	wake chan struct{} // gets a value when there is much to write, or nothing follows; capacity 1

	mu     sync.Mutex
	events []event
	bytes  int
	done   func(error) // of Drain
	ended  bool
}

// Write implements fanout.Sink.
func (k *diskSink) Write(batch [][]byte) (blocked bool, err error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	for len(batch) > 0 {
		var e event
		var ok bool
		if e.first, e.second, batch, ok = framing.NextPayload(batch); !ok {
			return false, errors.New("that is no event")
		}
		k.events = append(k.events, e)
		k.bytes += len(e.first) + len(e.second)
	}
	return k.bytes >= mostUnwritten, nil
}

// Drain implements fanout.Sink.
func (k *diskSink) Drain(done func(error)) {
	k.mu.Lock()
	k.done = done
	k.mu.Unlock()
	k.look()
}

// End implements fanout.Sink.
func (k *diskSink) End(fanout.Reason, bool) {
	k.mu.Lock()
	k.ended = true
	k.mu.Unlock()
	k.look()
}

func (k *diskSink) look() {
	select {
	case k.wake <- struct{}{}:
	default:
	}
}

// take returns the events that have come, and whether none follows.
func (k *diskSink) take() (events []event, over bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	events, k.events, k.bytes = k.events, nil, 0
	return events, k.ended
}

// written says that what was taken is written, or can't be.
func (k *diskSink) written(err error) {
	k.mu.Lock()
	done := k.done
	k.done = nil
	k.mu.Unlock()
	if done != nil {
		done(err)
	}
}
