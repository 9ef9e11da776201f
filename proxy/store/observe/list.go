package observe

import (
	"bytes"
	"cmp"
	"compress/gzip"
	"context"
	"hash/maphash"
	"io"
	"slices"
	"time"

	"github.com/watchfan/watchfan/framing"
)

// openWait is how long a lane may take to be filled for an observation, and a list in all.
const openWait = time.Minute

// summary is what is kept of a list: 8 bytes of its body, and a little of each item.
type summary struct {
	sum   uint64 // of the body
	meta  framing.ListMeta
	items []item
	held  int // bytes, counted by summarize
}

// item is one object of a list, or of initial events.
type item struct {
	key     string
	version uint64
	sum     uint64 // of its bytes
	event   framing.EventType
}

// itemBytes is what an item takes beside its key.
const itemBytes = 64

// summarize reads a list. The caller gives the summary's held bytes back, also after an error.
func (o *Observer) summarize(e framing.Encoding, r io.Reader) (s summary, err error) {
	var whole maphash.Hash
	whole.SetSeed(o.seed)
	all := io.TeeReader(r, &whole)
	ids := framing.NewScanner(e, nil)
	s.meta, err = framing.ReadList(e, all, func(raw []byte) error {
		id, err := ids.Identity(raw)
		if err != nil {
			return err
		}
		i := item{key: string(id.AppendKey(nil)), version: id.ResourceVersion, sum: maphash.Bytes(o.seed, raw)}
		size := itemBytes + len(i.key)
		if !o.held.take(size) {
			return errMemory
		}
		s.held += size
		s.items = append(s.items, i)
		return nil
	})
	if err == nil {
		_, err = io.Copy(io.Discard, all)
	}
	s.sum = whole.Sum64()
	return s, err
}

// list compares a list.
func (f *following) list() {
	o := f.observer
	ctx, cancel := context.WithTimeout(o.ctx, openWait)
	defer cancel()
	began, from := time.Now(), &body{tee: f.tee, ctx: ctx}
	var waited time.Duration // for a lane and a proof
	defer func() {
		f.drop()
		o.lists.end(time.Since(began) - from.waited - waited)
	}()
	theirs, err := f.theirList(from)
	defer func() { o.held.give(theirs.held) }()
	if err != nil {
		f.skip(whyNot(err), 1)
		return
	}
	server, since := time.Since(f.arrived), time.Now()
	side, why := f.read.Open(ctx, f.header.Get("Content-Type"))
	waited = time.Since(since)
	if why != "" {
		f.skip(why, 1)
		return
	}
	defer side.Close()
	since = time.Now()
	ours, why := side.List(theirs.meta.ResourceVersion)
	cache := time.Since(since)
	waited += cache
	if why != "" {
		f.skip(why, 1)
		return
	}
	o.results.list(f.read.Resource, server, cache)
	f.compareLists(side.Encoding(), theirs, ours)
}

// theirList reads kube-apiserver's list, which may be compressed.
func (f *following) theirList(from io.Reader) (s summary, err error) {
	if from, err = unzipped(from, f.header.Get("Content-Encoding") == "gzip"); err != nil {
		return s, err
	}
	encoding, _ := framing.EncodingOf(f.header.Get("Content-Type"))
	return f.observer.summarize(encoding, from)
}

// unzipped returns what r has compressed, if it has.
func unzipped(r io.Reader, zipped bool) (io.Reader, error) {
	if !zipped {
		return r, nil
	}
	return gzip.NewReader(r)
}

// compareLists notes how a list of the cache differs from kube-apiserver's.
func (f *following) compareLists(e framing.Encoding, theirs summary, parts [][]byte) {
	o := f.observer
	var whole maphash.Hash
	whole.SetSeed(o.seed)
	readers := make([]io.Reader, 0, len(parts))
	for _, part := range parts {
		_, _ = whole.Write(part)
		readers = append(readers, bytes.NewReader(part))
	}
	if whole.Sum64() == theirs.sum {
		return
	}
	ours, err := o.summarize(e, io.MultiReader(readers...))
	defer o.held.give(ours.held)
	version := theirs.meta.ResourceVersion
	if err != nil { // for lack of memory, as it may be: a part of the items says nothing of the others
		f.differ(Bytes, "", version, version)
		return
	}
	if found := f.compareItems(theirs.items, ours.items); !found {
		kind := Bytes
		if inOrder := func(a, b item) bool { return a.key == b.key }; !slices.EqualFunc(theirs.items, ours.items, inOrder) {
			kind = Reordered
		}
		f.differ(kind, "", version, ours.meta.ResourceVersion)
	}
}

// mostOfOne bounds the differences of one list that are noted.
const mostOfOne = 16

// compareItems notes how objects differ, whatever their order. It reports whether any does.
func (f *following) compareItems(theirs, ours []item) (found bool) {
	byKey := func(a, b item) int { return cmp.Compare(a.key, b.key) }
	theirs, ours = slices.SortedFunc(slices.Values(theirs), byKey), slices.SortedFunc(slices.Values(ours), byKey)
	noted := 0
	note := func(k Kind, key string, server, cache uint64) {
		if noted++; noted <= mostOfOne {
			f.differ(k, key, server, cache)
		}
	}
	for len(theirs)+len(ours) > 0 {
		switch {
		case len(ours) == 0 || len(theirs) > 0 && theirs[0].key < ours[0].key:
			note(Stale, theirs[0].key, theirs[0].version, 0)
			theirs = theirs[1:]
			continue
		case len(theirs) == 0 || ours[0].key < theirs[0].key:
			note(Stale, ours[0].key, 0, ours[0].version)
			ours = ours[1:]
			continue
		case theirs[0].version != ours[0].version:
			note(Stale, ours[0].key, theirs[0].version, ours[0].version)
		case theirs[0].sum != ours[0].sum:
			note(Bytes, ours[0].key, theirs[0].version, ours[0].version)
		}
		theirs, ours = theirs[1:], ours[1:]
	}
	return noted > 0
}
