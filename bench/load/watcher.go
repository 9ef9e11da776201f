//go:build linux

package load

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net/http"

	"github.com/watchfan/watchfan/bench/measure"
)

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
	lean     bool // ask for objects without metadata.managedFields
	dialer   measure.Dialer
}

// open opens the watch and returns it when the server has accepted it, with the bytes that came
// after the head of the answer. The connection is still blocking.
func (q watchRequest) open() (*watcher, []byte, error) {
	c, err := open(q.dialer, q.endpoint)
	if err != nil {
		return nil, nil, err
	}
	w := &watcher{conn: c, Watch: Watch{filter: q.filter, lean: q.lean}}
	w.over = w
	early, err := w.begin(q)
	if err != nil {
		c.sock.Close()
		return nil, nil, err
	}
	return w, early, nil
}

// accept returns the type that is asked for.
func (q watchRequest) accept() string { return accept("application/json", q.lean) }

// uri returns the target of the request.
func (q watchRequest) uri() string {
	return q.path + "?watch=1&allowWatchBookmarks=true&resourceVersion=" + q.version + q.filter.query
}

func (w *watcher) begin(q watchRequest) (early []byte, err error) {
	if _, err := io.WriteString(w.rw, RequestHead(q.endpoint, q.uri(), q.accept(), q.gzip)); err != nil {
		return nil, err
	}
	br := bufio.NewReader(w.rw)
	resp, err := http.ReadResponse(br, nil)
	if err != nil {
		return nil, err
	}
	if resp.StatusCode != http.StatusOK || len(resp.TransferEncoding) != 1 || resp.TransferEncoding[0] != "chunked" {
		body, _ := br.Peek(min(br.Buffered(), 300))
		return nil, fmt.Errorf("watch answered %s, transfer encoding %v: %.300q", resp.Status, resp.TransferEncoding, body)
	}
	switch encoding := resp.Header.Get("Content-Encoding"); {
	case encoding == "gzip" && q.gzip:
		w.scan.inflate = new(inflater)
	case encoding != "":
		return nil, fmt.Errorf("watch answered with content encoding %s", encoding)
	}
	rest, err := br.Peek(br.Buffered())
	return bytes.Clone(rest), err
}

// Name is the name of this program among the processes, and its User-Agent. It separates requests
// from watchfan's own in kube-apiserver's audit log.
const Name = "bench"

// RequestHead returns the head of a GET.
func RequestHead(e Endpoint, uri, mediaType string, gzip bool) string {
	head := "GET " + uri + " HTTP/1.1\r\nHost: " + e.Addr.String() + "\r\nUser-Agent: " + Name +
		"\r\nAccept: " + mediaType + "\r\n"
	if gzip {
		head += "Accept-Encoding: gzip\r\n"
	}
	if e.Token != "" {
		head += "Authorization: Bearer " + e.Token + "\r\n"
	}
	return head + "\r\n"
}

// take implements client.
func (w *watcher) take(p []byte, t *tally) error {
	w.ended = w.scan.feed(p, func(line []byte) error { return w.count(line, t) })
	return w.ended
}

// end implements carrier.
func (w *watcher) end(_ *Watch, r *reader) { r.remove(w) }
