package selfcheck

import (
	"context"
	"errors"
	"fmt"
	"iter"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// mostNamed is how many of the differences are named.
const mostNamed = 5

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
	m := newMerge(s, after, upTo)
	defer m.stop()
	var again digest
	var last string
	h := &hasher{}
	_, err = x.read(ctx, x.pages[i].token, after, func(key []byte, id framing.Identity) {
		again.add(hash(h, key, id.UID, id.ResourceVersion))
		m.listed(string(key), string(id.UID), id.ResourceVersion)
	}, &last)
	if err != nil {
		return nil, err
	}
	if again != x.pages[i].digest || last != x.pages[i].last {
		return nil, errors.New("upstream listed other objects at the second time")
	}
	m.end()
	return m.named, nil
}

// merge compares the objects of a snapshot, within a range of keys, with listed ones. Both come in
// the order of their keys.
type merge struct {
	upTo  string // the last key of the range; "" is no bound
	pull  func() (*framing.Object, bool)
	stop  func()
	next  *framing.Object // of the snapshot; nil after the last
	named []string
}

// newMerge returns a merge of the objects behind the key after.
func newMerge(s fanout.Snapshot, after, upTo string) *merge {
	m := &merge{upTo: upTo}
	m.pull, m.stop = iter.Pull(iter.Seq[*framing.Object](s.All))
	for m.advance(); m.next != nil && m.next.Key <= after; {
		m.advance()
	}
	return m
}

// advance goes to the next object of the snapshot.
func (m *merge) advance() {
	m.next, _ = m.pull()
	if m.next != nil && m.upTo != "" && m.next.Key > m.upTo {
		m.next = nil
	}
}

// listed takes the next listed object.
func (m *merge) listed(key, uid string, rv uint64) {
	for m.next != nil && m.next.Key < key {
		m.name(m.next.Key, "kube-apiserver does not have it")
		m.advance()
	}
	if m.next == nil || m.next.Key > key {
		m.name(key, "missing")
		return
	}
	if m.next.ResourceVersion != rv {
		m.name(key, fmt.Sprintf("at %d, kube-apiserver at %d", m.next.ResourceVersion, rv))
	} else if m.next.UID() != uid {
		m.name(key, "another uid")
	}
	m.advance()
}

// end names the objects behind the last listed one.
func (m *merge) end() {
	for ; m.next != nil; m.advance() {
		m.name(m.next.Key, "kube-apiserver does not have it")
	}
}

// name names a difference, unless enough are named.
func (m *merge) name(key, how string) {
	if len(m.named) < mostNamed {
		m.named = append(m.named, key+": "+how)
	}
}
