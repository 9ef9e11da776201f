package selfcheck

import (
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"math/bits"
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
	began := time.Now()
	p, meta, err := x.read(ctx, token, x.lastKey(), nil)
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

// read requests a page, whose keys are behind after. It calls each, unless that is nil, for each
// object of it. Once the list has a resourceVersion, a page that is read again is as of that one,
// and not of changes since.
func (x *list) read(ctx context.Context, token, after string, each func(listed)) (p page, meta framing.ListMeta, err error) {
	p = page{token: token, last: after}
	var key []byte
	meta, err = x.lane.Collection.ListIdentities(ctx, x.limit, token, x.rv, func(id framing.Identity) error {
		key = id.AppendKey(key[:0])
		o := listed{string(key), string(id.UID), id.ResourceVersion}
		if o.key <= p.last {
			return errOrder
		}
		p.last = o.key
		p.digest.add(hash(o.key, o.uid, o.rv))
		if each != nil {
			each(o)
		}
		return nil
	})
	return p, meta, err
}

// firstDifferent returns the digest of a snapshot, and the index of the first page that differs
// from it, -1 if all are equal. Each page but the last stands for the keys up to its own last.
func (x *list) firstDifferent(s fanout.Snapshot) (all digest, first int) {
	parts := make([]digest, len(x.pages)) // of the snapshot
	i := 0
	for o := range s.All {
		for i < len(x.pages)-1 && o.Key > x.pages[i].last {
			i++
		}
		parts[i].add(hash(o.Key, o.UID(), o.ResourceVersion))
	}
	first = -1
	for i, part := range parts {
		all.add(part)
		if first < 0 && part != x.pages[i].digest {
			first = i
		}
	}
	return all, first
}

// digest is the digest of a set of objects, and their number. The zero value is that of none. It
// does not tell objects that somebody has chosen for their hashes from others.
type digest struct {
	hi, lo  uint64 // the sum of the objects' hashes modulo 2^128
	objects int
}

// add adds the objects of another set.
func (d *digest) add(e digest) {
	var carry uint64
	d.lo, carry = bits.Add64(d.lo, e.lo, 0)
	d.hi, _ = bits.Add64(d.hi, e.hi, carry)
	d.objects += e.objects
}

// String returns the sum in hexadecimal digits.
func (d digest) String() string { return fmt.Sprintf("%016x%016x", d.hi, d.lo) }

// hash returns the digest of one object.
func hash(key, uid string, rv uint64) digest {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00%s\x00%d", key, uid, rv))
	return digest{binary.BigEndian.Uint64(sum[:]), binary.BigEndian.Uint64(sum[8:]), 1}
}
