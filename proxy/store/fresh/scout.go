package fresh

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/watchfan/watchfan/framing"
)

// A scout is a short upstream watch from the cache's resourceVersion, for its bookmark.
// Kube-apiserver offers one bookmark in 1 to 1.25 s to all watches of a resource that want one. A
// watch with a timeout of 3 s wants one from the second after the one in which it began, by
// kube-apiserver's clock (bookmarkTimer and watcherBookmarkTimeBuckets in
// k8s.io/apiserver/pkg/storage/cacher).
const (
	// scoutEvery is how often a scout begins while a question is open. Then one is there in each of
	// kube-apiserver's seconds, and none of its bookmarks goes by.
	scoutEvery = 900 * time.Millisecond
	// scoutLife is the age from which a scout that has brought a bookmark may bring no other.
	scoutLife = time.Second
	// mostScouts bounds the scouts of a collection. More than three are there only if upstream is late.
	mostScouts = 4
)

// sendScout begins a scout if none is under way, or the last one began scoutEvery ago. It returns
// when to try again.
func (p *Prover) sendScout(timeout time.Duration) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	if wait := time.Until(p.scouted.Add(scoutEvery)); p.scouts > 0 && wait > 0 {
		return wait
	}
	if p.scouts < mostScouts && p.spawn(func(ctx context.Context) { p.scout(ctx, timeout) }) {
		p.scouts++
		p.scouted = time.Now()
	}
	return scoutEvery
}

// scout runs one scout. If it fails and nothing else seeks a proof, it fails the questions that
// wait, because their requests pass through sooner than another scout would return.
func (p *Prover) scout(ctx context.Context, timeout time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := p.readBookmarks(ctx)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.scouts--
	if err == nil || p.scouts > 0 || p.listing {
		return
	}
	for _, q := range p.seekingLocked() {
		q.cancel(err)
	}
}

// readBookmarks advances the cache to each bookmark of a scout. Before that it waits until the
// reflector's own stream has brought the last change that the scout has shown, so no change is missing
// up to the bookmark.
func (p *Prover) readBookmarks(ctx context.Context) error {
	began, epoch := time.Now(), p.Cache.Epoch()
	last := p.Cache.Progress() // of the scout's changes
	return p.Collection.ReadWatch(ctx, last, func(ev framing.Event) (more bool, err error) {
		if ev.Type != framing.Bookmark {
			last = ev.ResourceVersion
			return true, nil
		}
		if err := p.Cache.WaitFor(ctx, last); err != nil {
			p.breakLate(err)
			return false, fmt.Errorf("at %d, upstream at %d: %w", p.Cache.Progress(), last, err)
		}
		if !p.advance(epoch, last, ev.ResourceVersion) {
			return false, errors.New("listed again meanwhile")
		}
		return time.Since(began) < scoutLife && p.seeks(), nil
	})
}

// advance advances the cache to a bookmark.
func (p *Prover) advance(epoch, last, bookmark uint64) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.Cache.Progress() < bookmark { // otherwise the reflector's own stream has been sooner
		p.bookmark = bookmark
	}
	return p.Cache.AdvanceFrom(epoch, last, bookmark)
}

// seeks reports whether a question waits for the cache to reach its resourceVersion.
func (p *Prover) seeks() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.seekingLocked()) > 0
}
