package observe

import (
	"io"
	"net/http"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/gate/view"
)

// Owes reports whether a client, which reads in view v, has to begin anew because kube-apiserver has told it more
// in another form, and has not done so yet. scope is what it reads of its resource.
func (o *Observer) Owes(c Client, v *view.View, scope string) bool {
	if !o.toldOther(c, v) {
		return false
	}
	_, listed := o.list(o.ruling.Load(), c, v, scope)
	return !listed
}

// note notes as of which resourceVersion kube-apiserver has the client begin anew, if that matters.
func (f *following) note(h http.Header) {
	o := f.observer
	encoding, known := framing.EncodingOf(h.Get("Content-Type"))
	if !known || f.read.Watch && (!f.read.Initial || encoding == framing.CBOR) || !o.Owes(f.client, f.read.View, f.read.Scope) {
		return
	}
	zipped := h.Get("Content-Encoding") == "gzip"
	t := newTee(&o.held)
	f.anew = t
	o.running.Go(func() {
		defer o.Guard.Caught("observer", nil)
		defer t.fail(errBehind) // it has to hold nothing more
		from, err := unzipped(&body{tee: t, ctx: o.ctx, wakes: f.read.Watch}, zipped)
		begins := listedAt
		if f.read.Watch {
			begins = bookmarkedAt
		}
		rv := uint64(0)
		if err == nil {
			rv, err = begins(encoding, from)
		}
		if err == nil {
			o.List(f.client, f.read.View, f.read.Scope, rv, f.arrived)
		}
	})
}

// listedAt returns the resourceVersion of a list.
func listedAt(e framing.Encoding, r io.Reader) (rv uint64, err error) {
	meta, err := framing.ReadList(e, r, func([]byte) error { return nil })
	if err == nil {
		_, err = io.Copy(io.Discard, r) // it ends properly
	}
	return meta.ResourceVersion, err
}

// bookmarkedAt returns the resourceVersion of a watch's first bookmark. None comes among the initial events.
func bookmarkedAt(e framing.Encoding, r io.Reader) (rv uint64, err error) {
	next := make([]byte, muchTee)
	for rest := []byte(nil); len(rest) <= framing.MaxEvent; {
		n, err := r.Read(next)
		if err != nil {
			return 0, err
		}
		rest = append(rest, next[:n]...)
		for n := length(e, rest); n > 0 && n <= len(rest); n = length(e, rest) {
			if framing.IsBookmark(e, rest[:n]) {
				scanner := framing.NewScanner(e, nil)
				bookmark, err := scanner.Event(rest[e.LengthPrefix():n])
				return bookmark.ResourceVersion, err
			}
			rest = rest[n:]
		}
	}
	return 0, errBroken
}
