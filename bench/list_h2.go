//go:build linux

package main

import (
	"fmt"
	"io"
	"strconv"
	"time"

	"golang.org/x/net/http2"
)

// An h2Lister lists over HTTP/2, with one stream at a time.
type h2Lister struct {
	*h2conn
	under    *listConn
	endpoint endpoint
	form     form
	target   string

	// The present list.
	id     uint32
	body   io.Writer
	status int // 0 before the head
	unpaid int // bytes that were not given back to the stream
	ended  bool
	refuse []byte // begin of a body with another status than 200
}

func newH2Lister(c *listConn, e endpoint, f form, path string) (*h2Lister, error) {
	h := newH2Conn(c.conn, largeSteps)
	l := &h2Lister{h2conn: h, under: c, endpoint: e, form: f, target: f.target(path)}
	h.to = l
	if err := requireH2(c.conn); err != nil {
		return nil, err
	}
	return l, h.begin()
}

func (l *h2Lister) list(w io.Writer) (took time.Duration, err error) {
	start := time.Now()
	l.body, l.status, l.unpaid, l.ended, l.refuse = w, 0, 0, false, nil
	if l.id, err = l.ask(l.endpoint, l.target, l.form.accept(), l.form.encoding == "gzip"); err == nil {
		err = l.flush()
	}
	for err == nil && !l.ended {
		var n int
		if n, err = l.rw.Read(l.under.buf); n > 0 {
			if wrong := l.feed(l.under.buf[:n]); wrong != nil {
				return 0, wrong
			}
		}
	}
	if err == nil && l.status != 200 {
		err = fmt.Errorf("list answered %d: %s", l.status, l.refuse)
	}
	return time.Since(start), err
}

func (l *h2Lister) received() uint64 { return l.under.received() }

func (l *h2Lister) close() { l.under.close() }

// headers implements answerTaker.
func (l *h2Lister) headers(id uint32, h *http2.MetaHeadersFrame, end bool) (err error) {
	if id != l.id {
		return fmt.Errorf("an answer on stream %d, which asks for nothing", id)
	}
	l.ended = end
	if l.status != 0 {
		return nil // trailers
	}
	if l.status, err = strconv.Atoi(h.PseudoValue("status")); err != nil || l.status != 200 {
		return err
	}
	var contentType, encoding string
	for _, f := range h.RegularFields() {
		switch f.Name {
		case "content-type":
			contentType = f.Value
		case "content-encoding":
			encoding = f.Value
		}
	}
	return l.form.check(l.status, contentType, encoding)
}

// data implements answerTaker.
func (l *h2Lister) data(id uint32, p []byte, end bool) (err error) {
	if id != l.id {
		return fmt.Errorf("data on stream %d, which asks for nothing", id)
	}
	if l.status != 200 {
		l.refuse = append(l.refuse, p[:min(len(p), 300-len(l.refuse))]...)
	} else if _, err = l.body.Write(p); err != nil {
		return err
	}
	l.unpaid, err = l.giveBack(id, l.unpaid, len(p))
	l.ended = end
	return err
}

// reset implements answerTaker.
func (l *h2Lister) reset(_ uint32, code http2.ErrCode) error { return &resetError{code} }
