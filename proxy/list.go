package proxy

import (
	"bufio"
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"io"
	"strings"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/valyala/fasthttp"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// gzipThreshold is the body size above which kube-apiserver compresses, at level 1, for clients that accept it
// (k8s.io/apiserver/pkg/endpoints/handlers/responsewriters/writers.go).
const (
	gzipThreshold = 128 << 10
	gzipLevel     = 1
)

// notOlderThan waits until the cache is known to be at resourceVersion rv, and returns a snapshot that is.
func (c *cachedReads) notOlderThan(l *lane, rv string) (fanout.Snapshot, bool) {
	least, err := parseVersion(rv)
	if err != nil {
		return fanout.Snapshot{}, false
	}
	if l.cache.Progress() < least {
		ctx, cancel := context.WithTimeout(c.ctx, c.opts.FreshnessTimeout)
		defer cancel()
		if _, err := c.prove(ctx, l, least); err != nil || l.cache.Progress() < least {
			return fanout.Snapshot{}, false
		}
	}
	return l.cache.Snapshot(), true
}

// serveGet answers a get with a resourceVersion.
func (c *cachedReads) serveGet(ctx *fasthttp.RequestCtx, req *request, l *lane, namespace string) bool {
	snapshot, ok := c.notOlderThan(l, req.resourceVersion)
	if !ok {
		return false
	}
	key := req.name
	if namespace != "" {
		key = namespace + "/" + key
	}
	o, ok := snapshot.Get(key)
	if !ok {
		writeStatus(ctx, notFound(req.gvr, req.name))
		l.writeWarnings(ctx)
		return true
	}
	body := object{o.JSON()}
	c.writeBody(ctx, req, l, body.size(), body)
	return true
}

// object is the body of a get.
type object struct{ json []byte }

func (o object) size() int { return len(o.json) + 1 }

func (o object) writeTo(w io.Writer) error {
	if _, err := w.Write(o.json); err != nil {
		return err
	}
	_, err := io.WriteString(w, "\n")
	return err
}

// serveList answers a list with a resourceVersion.
func (c *cachedReads) serveList(ctx *fasthttp.RequestCtx, req *request, l *lane, filter *fanout.Filter) bool {
	snapshot, ok := c.notOlderThan(l, req.resourceVersion)
	if !ok {
		return false
	}
	limit := req.limit
	if req.resourceVersion == "0" {
		limit = 0 // as kube-apiserver's cache does
	}
	list := newListBody(*l.form.Load(), snapshot, filter, int(limit), req)
	c.writeBody(ctx, req, l, list.bytes, list)
	return true
}

// listBody is a list assembled from the items' own bytes.
type listBody struct {
	form       framing.ListForm
	head, tail []byte
	items      []*framing.Object
	bytes      int
}

func newListBody(form framing.ListForm, snapshot fanout.Snapshot, filter *fanout.Filter, limit int, req *request) *listBody {
	b := &listBody{form: form}
	meta := framing.ListMeta{ResourceVersion: snapshot.ResourceVersion}
	snapshot.Ascend(filter, "", func(o *framing.Object) bool {
		if limit > 0 && len(b.items) == limit {
			return false
		}
		b.items = append(b.items, o)
		return true
	})
	if n := len(b.items); limit > 0 && n == limit {
		last := b.items[n-1].Key
		keys := 0 // that follow, whether they match or not, as kube-apiserver counts
		snapshot.Ascend(filter.Scope(), last, func(*framing.Object) bool {
			keys++
			return true
		})
		if keys > 0 {
			meta.Continue = continueToken(snapshot.ResourceVersion, strings.TrimPrefix(last, req.namespacePrefix()))
			if req.rawLabels == "" && req.rawFields == "" {
				meta.RemainingItemCount = int64(keys)
			}
		}
	}
	b.head, b.tail = form.Envelope(meta)
	b.bytes = len(b.head) + len(b.tail)
	for i, o := range b.items {
		open, rest := form.Item(o, i == 0)
		b.bytes += len(open) + len(rest)
	}
	return b
}

func (b *listBody) writeTo(w io.Writer) error {
	if _, err := w.Write(b.head); err != nil {
		return err
	}
	for i, o := range b.items {
		open, rest := b.form.Item(o, i == 0)
		if _, err := io.WriteString(w, open); err != nil {
			return err
		}
		if _, err := w.Write(rest); err != nil {
			return err
		}
	}
	_, err := w.Write(b.tail)
	return err
}

// namespacePrefix is what keys within the request's collection begin with.
func (req *request) namespacePrefix() string {
	if req.namespace == "" {
		return ""
	}
	return req.namespace + "/"
}

// continueToken tells where the next page begins: behind key, as of resourceVersion rv. kube-apiserver reads it as its own
// (k8s.io/apiserver/pkg/storage/continue.go).
func continueToken(rv uint64, key string) string {
	token, err := json.Marshal(struct {
		APIVersion      string `json:"v"`
		ResourceVersion uint64 `json:"rv"`
		StartKey        string `json:"start"`
	}{"meta.k8s.io/v1", rv, "/" + key + "\x00"})
	if err != nil {
		panic("encode continue token: " + err.Error()) // it holds a number and strings only
	}
	return base64.RawURLEncoding.EncodeToString(token)
}

// body is a response body whose size is known and whose bytes are shared.
type body interface{ writeTo(io.Writer) error }

// writeBody makes b, of the given size, the response.
func (c *cachedReads) writeBody(ctx *fasthttp.RequestCtx, req *request, l *lane, size int, b body) {
	commonHeaders(ctx)
	ctx.Response.Header.SetContentType("application/json")
	l.writeWarnings(ctx)
	if req.gzip && size > gzipThreshold {
		ctx.Response.Header.Set("Content-Encoding", "gzip")
		ctx.Response.Header.Set("Vary", "Accept-Encoding")
		b, size = compressed{b}, -1
	}
	ctx.Response.SetBodyStream(&bodyStream{b}, size)
}

// compressed is a body under gzip.
type compressed struct{ body }

func (c compressed) writeTo(w io.Writer) error {
	buf := bufio.NewWriterSize(w, 32<<10) // each write below becomes a chunk
	z := gzipWriters.Get().(*gzip.Writer)
	defer gzipWriters.Put(z)
	z.Reset(buf)
	if err := c.body.writeTo(z); err != nil {
		return err
	}
	if err := z.Close(); err != nil {
		return err
	}
	return buf.Flush()
}

// gzipWriters are compressors of level gzipLevel.
var gzipWriters = sync.Pool{New: func() any {
	z, err := gzip.NewWriterLevel(nil, gzipLevel)
	if err != nil {
		panic("gzip: " + err.Error()) // only for a level that does not exist
	}
	return z
}}

// bodyStream is how fasthttp takes a body: it writes itself (fasthttp.BodyWriterTo) and is never read.
type bodyStream struct{ body body }

func (s *bodyStream) SupportsBodyWriteTo() bool { return true }

func (s *bodyStream) WriteTo(w io.Writer) (int64, error) {
	counter := &countingWriter{w: w}
	err := s.body.writeTo(counter)
	return counter.n, err
}

func (s *bodyStream) Read([]byte) (int, error) {
	return 0, errors.New("a list body is written, not read")
}

type countingWriter struct {
	w io.Writer
	n int64
}

func (c *countingWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}
