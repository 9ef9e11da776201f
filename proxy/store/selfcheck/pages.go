package selfcheck

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/store/lane"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const (
	// pageBytes is the size of the objects in a page, as the lane holds them: kube-apiserver may
	// have to read them whole to list their metadata. A page has leastPage to mostPage objects.
	pageBytes = 16 << 20
	leastPage = 50
	mostPage  = 5000
	// share is the part of the time in which upstream works for comparisons, as 1/share.
	share = 4
)

// pageLimit returns how many objects a page should have.
func pageLimit(s fanout.Stats) int {
	if s.Objects == 0 {
		return mostPage
	}
	return int(min(max(pageBytes/(s.Bytes/int64(s.Objects)+1), leastPage), mostPage))
}

// list is upstream's list of one collection, as of resourceVersion rv.
type list struct {
	lane  *lane.Lane // that asks for it
	limit int        // objects in a page
	rv    uint64     // 0 before the first page
	pages []page     // in the order of keys
}

// page is what is kept of one page of a list.
type page struct {
	token  string // that leads to it
	last   string // the last of its keys
	digest digest
}

var errOrder = errors.New("objects are not in the order of their keys")

// next requests the page that a token leads to, and rests. It returns the token of the page after
// it, "" for none.
func (x *list) next(ctx context.Context, token string) (string, error) {
	p, h, began := page{token: token}, &hasher{}, time.Now()
	meta, err := x.read(ctx, token, x.lastKey(), func(key []byte, id framing.Identity) {
		p.digest.add(hash(h, key, id.UID, id.ResourceVersion))
	}, &p.last)
	if err != nil {
		return "", err
	}
	if x.rv == 0 {
		x.rv = meta.ResourceVersion
	}
	switch {
	case meta.ResourceVersion != x.rv:
		return "", fmt.Errorf("list %s: a page is as of %d, the first as of %d", x.lane, meta.ResourceVersion, x.rv)
	case meta.Continue != "" && p.digest.objects == 0:
		return "", fmt.Errorf("list %s: a page is empty, and not the last", x.lane)
	}
	x.pages = append(x.pages, p)
	exchange.Sleep(ctx, (share-1)*time.Since(began))
	return meta.Continue, context.Cause(ctx)
}

// lastKey returns the last key of all pages, "" for none.
func (x *list) lastKey() string {
	if len(x.pages) == 0 {
		return ""
	}
	return x.pages[len(x.pages)-1].last
}

// read calls f for each object of a page, whose keys are behind after, and sets last to the last
// key. key is valid until f returns. Once the list has a resourceVersion, a page that is read again
// is as of that one, and not of changes since.
func (x *list) read(
	ctx context.Context, token, after string, f func(key []byte, id framing.Identity), last *string,
) (framing.ListMeta, error) {
	before, key := []byte(after), []byte(nil)
	meta, err := x.lane.ListIdentities(ctx, x.limit, token, x.rv, func(id framing.Identity) error {
		key = id.AppendKey(key[:0])
		if bytes.Compare(key, before) <= 0 {
			return errOrder
		}
		f(key, id)
		before, key = key, before
		return nil
	})
	*last = string(before)
	return meta, err
}

// firstDifferent returns the digest of a snapshot, and the index of the first page that differs
// from it, -1 if all are equal. Each page but the last stands for the keys up to its own last.
func (x *list) firstDifferent(s fanout.Snapshot) (all digest, first int) {
	first = -1
	var one digest // of the snapshot's objects in the range of page i
	h, i := &hasher{}, 0
	end := func() {
		if first < 0 && one != x.pages[i].digest {
			first = i
		}
		all.add(one)
		one = digest{}
	}
	s.All(func(o *framing.Object) bool {
		for ; i < len(x.pages)-1 && o.Key > x.pages[i].last; i++ {
			end()
		}
		one.add(hash(h, o.Key, o.UID(), o.ResourceVersion))
		return true
	})
	for ; i < len(x.pages); i++ {
		end()
	}
	return all, first
}
