package fanout

import (
	"cmp"
	"time"
)

const (
	// bookmarkEvery, the default of Limits.BookmarkEvery, and bookmarkBefore are kube-apiserver's:
	// each minute, and two seconds before the timeout
	// (k8s.io/apiserver/pkg/storage/cacher/cache_watcher.go, nextBookmarkTime).
	bookmarkEvery  = time.Minute
	bookmarkBefore = 2 * time.Second
	bookmarkRetry  = time.Second // kube-apiserver's timer takes 1 to 1.25 s
)

func (s *Subscription) scheduleBookmark(every time.Duration, now MonotonicTime) {
	s.next = now + MonotonicTime(cmp.Or(every, bookmarkEvery))
	if last := s.deadline - MonotonicTime(bookmarkBefore); last > now && last < s.next {
		s.next = last
	}
}

// bookmark adds a bookmark, if one is due. All changes up to resourceVersion progress must have
// been sent. A subscription that is still where it began gets none, because the bookmark would say
// nothing new. One whose list has ended gets none, because the cache goes on without it.
func (s *Subscription) bookmark(b *batch, progress uint64, now MonotonicTime) {
	if !s.bookmarks || now < s.next || s.group.ending.Load() != nil {
		return
	}
	if progress <= s.startVersion || progress < s.lastVersion || !s.addBookmark(b, progress) {
		s.next = now + MonotonicTime(bookmarkRetry)
		return
	}
	s.scheduleBookmark(s.group.cache.limits.BookmarkEvery, now)
}

// addBookmark adds a bookmark, if it is known how bookmarks are written.
func (s *Subscription) addBookmark(b *batch, rv uint64) bool {
	form := s.group.cache.bookmarkForm.Load()
	if form == nil {
		return false
	}
	f, _ := s.opened(form.Frame(rv, false))
	s.add(b, f)
	return true
}

// lastBookmark adds the bookmark before a graceful end, for the client to resume from. All changes
// up to resourceVersion upTo must have been sent, and none after it; see Ending.bound. A client that
// asked for changes after a resourceVersion in the future gets none, because upTo is older than what
// it knows.
func (s *Subscription) lastBookmark(b *batch, upTo uint64) {
	if s.bookmarks && upTo >= s.startVersion {
		s.addBookmark(b, upTo)
	}
}
