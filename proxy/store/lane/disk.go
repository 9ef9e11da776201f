package lane

import (
	"cmp"
	"context"
	"errors"
	"fmt"
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
	defer l.removeWrong()
	select {
	case <-l.Filled():
	case <-ctx.Done():
	}
	said := "" // why it was not kept
	for ctx.Err() == nil {
		err := l.writeFile(ctx)
		l.removeWrong()
		switch {
		case ctx.Err() != nil:
		case errors.Is(err, errNotKept):
			exchange.Sleep(ctx, diskRetry)
		case err != nil:
			if why := err.Error(); why != said {
				said = why
				l.Log.Warn("The cache is not kept on disk", "err", err, "retryIn", diskRetry)
			}
			exchange.Sleep(ctx, diskRetry)
		default:
			said = ""
			exchange.Sleep(ctx, diskEvery)
		}
	}
}

// knownWrong reports whether the cache is known to differ from upstream, or to be of an earlier definition or perhaps
// of another server.
func (l *Lane) knownWrong() bool {
	return l.mistrusted.Load() || l.outdated.Load() || l.reflector.Status().KnownWrong
}

// removeWrong removes the lane's file if another start would begin with a state that is known to be wrong.
func (l *Lane) removeWrong() {
	if l.knownWrong() {
		l.lanes.cfg.Siblings.Disk.Remove(l.Collection.File())
	}
}

// errNotKept says that the lane's content is of no use to another start now.
var errNotKept = errors.New("upstream is away, or does not stream lists")

// writeFile writes one file, until another should be begun.
func (l *Lane) writeFile(ctx context.Context) error {
	if !l.WatchList() || !l.Cache.HasBookmarks() {
		return errNotKept
	}
	identity, err := l.SeedIdentity(ctx)
	if errors.Is(err, errNoSeed) {
		return errNotKept
	}
	if err != nil {
		return err
	}
	sub, err := l.Cache.Subscribe(fanout.Request{Filter: fanout.Everything, Start: fanout.FromSnapshot, Bookmarks: true,
		EndBookmark: true, Timeout: 365 * 24 * time.Hour, Beside: true})
	if err != nil {
		return fmt.Errorf("subscribe: %w", err)
	}
	defer sub.End(fanout.Ending{Reason: fanout.Gone})
	wakec := make(chan struct{}, 1)
	queue := &fanout.Queue{Most: mostUnwritten, Wake: func() {
		select {
		case wakec <- struct{}{}:
		default:
		}
	}}
	l.lanes.cfg.Flusher.Start(sub, queue)
	file, err := l.lanes.cfg.Siblings.Disk.Create(l.Collection.File(), identity)
	if err != nil {
		return err
	}
	tick := time.NewTicker(diskEvery)
	defer tick.Stop()
	var initial int64 // bytes; 0 until the file has all initial events
	restored := false
	for over := false; err == nil && !over && (initial == 0 || file.Size() < 2*initial+fileGrowth); {
		select {
		case <-wakec:
		case <-tick.C:
		case <-ctx.Done():
		}
		events, ended := queue.Take(nil)
		restored = ended == fanout.Backwards
		over = ended != "" || ctx.Err() != nil || l.knownWrong()
		for _, e := range events {
			if _, err = file.Write(e.First); err == nil {
				_, err = file.Write(e.Second)
			}
			if err == nil && initial == 0 && framing.IsBookmark(l.Encoding, e.First) {
				err = file.Publish()
				initial = file.Size()
			}
			if err != nil {
				break
			}
		}
		if err == nil {
			err = file.Flush()
		}
	}
	err = cmp.Or(err, file.Close())
	if restored { // it may take long to write another
		l.lanes.cfg.Siblings.Disk.Remove(l.Collection.File())
	}
	return err
}
