package load

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"
	"slices"

	"github.com/watchfan/watchfan/bench/measure"
)

// A Watch checks that it gets every write of every object that its filter matches, once, in order,
// and nothing else. It belongs to the holder of its reader's mu.
type Watch struct {
	scan   scanner
	filter Filter
	last   []uint64 // for each object, the number of the last write
	end    func()   // ends it, and its connection behind the last watch on it
	silent bool     // its events do not count, because it is no part of a fleet
	ended  error    // why it has ended; nil as long as it lasts
}

// count takes one event, and counts it unless the watch is silent.
func (w *Watch) count(line []byte, t *tally) error {
	seq, ok, err := seqOf(line)
	if err != nil || !ok {
		return err
	}
	n := uint64(len(w.last))
	object := seq % n
	if !w.filter.match(int(object)) {
		return fmt.Errorf("event of object %d, which the filter %q excludes", object, w.filter.query)
	}
	if want := w.last[object] + n; seq != want {
		return fmt.Errorf("object %d: got write %d after %d, want %d", object, seq, w.last[object], want)
	}
	w.last[object] = seq
	if !w.silent {
		t.deliver(seq)
	}
	return nil
}

// A watcher is one watch over HTTP/1.1, with a connection of its own.
type watcher struct {
	conn
	Watch
}

// A watchRequest is the request for one watch.
type watchRequest struct {
	endpoint Endpoint
	path     string // of the collection
	version  string // resourceVersion to watch from
	filter   Filter
	gzip     bool // ask for compression; the server decides
	dialer   measure.Dialer
}

// open opens the watch and returns it when the server has accepted it, with the bytes that came
// after the head of the answer. The connection is still blocking.
func (q watchRequest) open() (*watcher, []byte, error) {
	c, err := open(q.dialer, q.endpoint)
	if err != nil {
		return nil, nil, err
	}
	w := &watcher{conn: c, Watch: Watch{filter: q.filter}}
	early, err := w.begin(q)
	if err != nil {
		c.sock.Close()
	}
	return w, early, err
}

func (q watchRequest) uri() string {
	return q.path + "?watch=1&allowWatchBookmarks=true&resourceVersion=" + q.version + q.filter.query
}

func (w *watcher) begin(q watchRequest) (early []byte, err error) {
	if _, err := io.WriteString(w.rw, RequestHead(q.endpoint, q.uri(), q.gzip)); err != nil {
		return nil, err
	}
	br := bufio.NewReader(w.rw)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		return nil, err
	}
	encoding := resp.Header.Get("Content-Encoding")
	if resp.StatusCode != http.StatusOK || !slices.Contains(resp.TransferEncoding, "chunked") || encoding != "" && encoding != "gzip" {
		body, _ := br.Peek(min(br.Buffered(), 300))
		return nil, fmt.Errorf("watch answered %s, transfer encoding %v, content encoding %q: %.300q", resp.Status, resp.TransferEncoding,
			encoding, body)
	}
	if encoding == "gzip" {
		w.scan.inflate = new(inflater)
	}
	rest, err := br.Peek(br.Buffered())
	return bytes.Clone(rest), err
}

// Name is the name of this program among the processes, and its User-Agent. It separates requests
// from watchfan's own in kube-apiserver's audit log.
const Name = "bench"

// RequestHead returns the head of a GET of JSON.
func RequestHead(e Endpoint, uri string, gzip bool) string {
	head := "GET " + uri + " HTTP/1.1\r\nHost: " + e.Addr.String() + "\r\nUser-Agent: " + Name +
		"\r\nAccept: application/json\r\n"
	if gzip {
		head += "Accept-Encoding: gzip\r\n"
	}
	if e.Token != "" {
		head += "Authorization: Bearer " + e.Token + "\r\n"
	}
	return head + "\r\n"
}

func (w *watcher) take(p []byte, t *tally) error {
	w.ended = w.scan.feed(p, func(line []byte) error { return w.count(line, t) })
	return w.ended
}
