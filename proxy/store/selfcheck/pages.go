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
	lane   *lane.Lane // that asks for it
	limit  int        // objects in a page
	rv     uint64     // 0 before the first page
	last   string     // key
	digest digest     // of the objects so far
}

// listed is what upstream lists of one object.
type listed struct {
	key, uid string
	rv       uint64
}

var errOrder = errors.New("objects are not in the order of their keys")

// next requests the page that a token leads to, and rests. It returns the page, and the token of the one
// after it, "" for none.
func (x *list) next(ctx context.Context, token string) (page []listed, after string, err error) {
	began := time.Now()
	var key []byte
	meta, err := x.lane.Collection.ListIdentities(ctx, x.limit, token, func(id framing.Identity) error {
		key = id.AppendKey(key[:0])
		o := listed{string(key), string(id.UID), id.ResourceVersion}
		if o.key <= x.last {
			return errOrder
		}
		x.last = o.key
		x.digest.add(hash(o.key, o.uid, o.rv))
		page = append(page, o)
		return nil
	})
	if x.rv == 0 {
		x.rv = meta.ResourceVersion
	}
	switch {
	case err != nil:
		return nil, "", err
	case meta.ResourceVersion != x.rv:
		return nil, "", fmt.Errorf("list %s: a page is as of %d, the first as of %d", x.lane, meta.ResourceVersion, x.rv)
	case meta.Continue != "" && len(page) == 0:
		return nil, "", fmt.Errorf("list %s: a page is empty, and not the last", x.lane)
	}
	exchange.Sleep(ctx, (share-1)*time.Since(began))
	return page, meta.Continue, context.Cause(ctx)
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
