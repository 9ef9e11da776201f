package selfcheck

import (
	"context"
	"errors"
	"fmt"

	"github.com/watchfan/watchfan/fanout"
)

// mostNamed is how many of the differences are named.
const mostNamed = 5

// listed is what upstream lists of one object.
type listed struct {
	key, uid string
	rv       uint64
}

// differences says which objects of page i differ from the snapshot's, and how: the first of them,
// in the order of their keys. It requests the page again. It returns an error if upstream does not
// answer as it did before.
func (x *list) differences(ctx context.Context, s fanout.Snapshot, i int) (named []string, err error) {
	after, upTo := "", ""
	if i > 0 {
		after = x.pages[i-1].last
	}
	if i < len(x.pages)-1 {
		upTo = x.pages[i].last
	}
	var there []listed
	again, _, err := x.read(ctx, x.pages[i].token, after, func(o listed) { there = append(there, o) })
	if err != nil {
		return nil, err
	}
	if again != x.pages[i] {
		return nil, errors.New("upstream listed other objects at the second time")
	}
	return differing(s, after, upTo, there), nil
}

// differing names the first objects of a snapshot that differ from those there, which upstream lists.
// It looks at the keys behind after and up to upTo; "" is no bound. Both sides are in the order of
// their keys.
func differing(s fanout.Snapshot, after, upTo string, there []listed) (named []string) {
	name := func(key, how string) {
		if len(named) < mostNamed {
			named = append(named, key+": "+how)
		}
	}
	for o := range s.All {
		if upTo != "" && o.Key > upTo {
			break
		}
		if o.Key <= after {
			continue
		}
		for ; len(there) > 0 && there[0].key < o.Key; there = there[1:] {
			name(there[0].key, "missing")
		}
		switch {
		case len(there) == 0 || there[0].key > o.Key:
			name(o.Key, "kube-apiserver does not have it")
			continue
		case there[0].rv != o.ResourceVersion:
			name(o.Key, fmt.Sprintf("at %d, kube-apiserver at %d", o.ResourceVersion, there[0].rv))
		case there[0].uid != o.UID():
			name(o.Key, "another uid")
		}
		there = there[1:]
	}
	for _, l := range there {
		name(l.key, "missing")
	}
	return named
}
