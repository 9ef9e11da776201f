//go:build linux

package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http/httputil"
	"strings"
	"sync/atomic"
	"time"
)

// A syncer is a client that has a collection sent to it, with the bookmark that ends it, and
// nothing more. It belongs to whoever holds its reader's mu.
type syncer struct {
	conn
	request string
	objects int  // that must come
	keep    bool // a compressed body, to check it

	head  []byte // of the answer, until it is whole
	body  bool   // the head is whole
	gzip  bool   // the body is compressed
	scan  scanner
	added int
	done  bool
	kept  []byte
	bytes uint64
	last  time.Duration // when bytes came last, by the reader's clock
}

func (c *syncer) ask() error {
	_, err := io.WriteString(c.rw, c.request)
	return err
}

// compressed reports whether the answer is.
func (c *syncer) compressed() bool { return c.gzip }

// take implements client.
func (c *syncer) take(p []byte, t *tally) error {
	c.bytes += uint64(len(p))
	c.last = t.now
	if !c.body {
		rest, err := c.takeHead(p)
		if err != nil || !c.body {
			return err
		}
		p = rest
	}
	switch {
	case !c.gzip:
		return c.scan.feed(p, c.event)
	case c.keep:
		c.kept = append(c.kept, p...)
	}
	return nil
}

// takeHead takes the head of the answer and returns what comes behind it.
func (c *syncer) takeHead(p []byte) (rest []byte, err error) {
	const most = 16 << 10
	c.head = append(c.head, p...)
	head, rest, whole := bytes.Cut(c.head, []byte("\r\n\r\n"))
	switch {
	case !whole && len(c.head) > most:
		return nil, errors.New("watch answered with a head of more than 16 KiB")
	case !whole:
		return nil, nil
	case !bytes.HasPrefix(head, []byte("HTTP/1.1 200 ")):
		return nil, fmt.Errorf("watch answered %.300q", c.head)
	}
	lower := strings.ToLower(string(head))
	c.body, c.head, c.gzip = true, nil, strings.Contains(lower, "\r\ncontent-encoding: gzip")
	if !strings.Contains(lower, "\r\ntransfer-encoding: chunked") {
		return nil, fmt.Errorf("watch answered %.300q: not chunked", head)
	}
	return rest, nil
}

// endMark is how the bookmark that ends initial events is told from others (KEP-3157).
var endMark = []byte(`"k8s.io/initial-events-end":"true"`)

func (c *syncer) event(line []byte) error {
	switch {
	case bytes.HasPrefix(line, []byte(`{"type":"ADDED"`)) && !c.done:
		c.added++
	case bytes.HasPrefix(line, []byte(`{"type":"BOOKMARK"`)):
		if bytes.Contains(line, endMark) {
			c.done = true
			return c.complete()
		}
	default:
		return fmt.Errorf("unexpected event: %.300q", line)
	}
	return nil
}

func (c *syncer) complete() error {
	if c.added != c.objects {
		return fmt.Errorf("%d objects came, want %d", c.added, c.objects)
	}
	return nil
}

// check says whether everything has come. Of a compressed body only one that was kept can tell.
func (c *syncer) check() error {
	if c.gzip && c.keep && !c.done {
		z, err := gzip.NewReader(httputil.NewChunkedReader(bytes.NewReader(c.kept)))
		if err != nil {
			return err
		}
		plain, err := io.ReadAll(z) // ends where the stream does so far
		if err != nil && !errors.Is(err, io.ErrUnexpectedEOF) {
			return err
		}
		c.kept = nil
		var lines scanner
		if err := lines.lines(plain, c.event); err != nil {
			return err
		}
	}
	switch {
	case c.gzip && !c.keep:
		return nil
	case !c.done:
		return fmt.Errorf("no end bookmark; %d objects came", c.added)
	}
	return c.complete()
}

// startReader runs a reader until stop is called; done is closed when it has returned.
func startReader(r *reader) (stop func(), done <-chan struct{}) {
	var stopped atomic.Bool
	c := make(chan struct{})
	go func() { r.run(&stopped); close(c) }()
	return func() { stopped.Store(true) }, c
}
