package load

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"golang.org/x/net/http2"

	"github.com/watchfan/watchfan/bench/measure"
)

// A streams is an HTTP/2 connection with many watches. It belongs to the holder of its reader's mu.
type streams struct {
	*h2conn
	reader  *reader
	live    map[uint32]*stream // by number
	waiting int                // watches without the head of an answer
	refused error              // of the first watch that the server has refused
	tally   *tally
}

// A stream is one watch of many on a connection.
type stream struct {
	Watch
	id       uint32
	unpaid   int  // bytes that were not given back
	answered bool // the head of the answer has come
	deaf     bool // it gives nothing back, as a client that does not read
}

// dialStreams connects to e, without a watch, and hands the connection to r.
func dialStreams(d measure.Dialer, e Endpoint, f Flow, r *reader) (*streams, error) {
	h, err := dialH2(d, e, f)
	if err != nil {
		return nil, err
	}
	c := &streams{h2conn: h, reader: r, live: make(map[uint32]*stream)}
	h.to = c.answer
	if err := r.add(c, nil); err != nil {
		h.sock.Close()
		return nil, err
	}
	return c, nil
}

// open begins a watch for each request, and returns when the server has accepted all. seqs are the
// latest writes. Deaf watches are silent.
func (c *streams) open(ctx context.Context, requests []watchRequest, seqs []uint64, deaf bool) ([]*stream, error) {
	r := c.reader
	opened, err := c.begin(requests, seqs, deaf)
	for start := time.Now(); err == nil; err = Sleep(ctx, time.Millisecond) {
		r.mu.Lock()
		waiting, refused, closed := c.waiting, c.refused, r.clients[c.sock.FD] != client(c)
		r.mu.Unlock()
		switch {
		case refused != nil:
			return nil, refused
		case closed:
			return nil, errors.New("the connection has ended")
		case waiting == 0:
			return opened, nil
		case time.Since(start) > connectTimeout:
			return nil, fmt.Errorf("%d of %d watches not answered within %v", waiting, len(requests), connectTimeout)
		}
	}
	return nil, err
}

func (c *streams) begin(requests []watchRequest, seqs []uint64, deaf bool) (begun []*stream, err error) {
	c.reader.mu.Lock()
	defer c.reader.mu.Unlock()
	for _, q := range requests {
		s := &stream{deaf: deaf, Watch: Watch{filter: q.filter, silent: deaf, last: slices.Clone(seqs)}}
		s.end = func() { c.cancel(s) }
		if s.id, err = c.ask(q.endpoint, q.uri(), q.gzip); err != nil {
			return nil, err
		}
		c.live[s.id] = s
		c.waiting++
		begun = append(begun, s)
	}
	return begun, c.flush()
}

func (c *streams) take(p []byte, t *tally) error {
	c.tally = t
	if err := c.feed(p); err != nil {
		return fmt.Errorf("connection of %d watches: %w", len(c.live), err)
	}
	return nil
}

// answer takes a frame of an answer. Those of a watch that was cancelled are left out.
func (c *streams) answer(f http2.Frame) error {
	s := c.live[f.Header().StreamID]
	switch f := f.(type) {
	case *http2.DataFrame:
		return c.data(s, f)
	case *http2.MetaHeadersFrame:
		if s != nil {
			c.headers(s, f)
		}
	case *http2.RSTStreamFrame:
		if s != nil {
			c.over(s, &resetError{f.ErrCode})
		}
	}
	return nil
}

// headers takes the head of an answer, or its trailers.
func (c *streams) headers(s *stream, h *http2.MetaHeadersFrame) {
	encoding := ""
	for _, f := range h.RegularFields() {
		if f.Name == "content-encoding" {
			encoding = f.Value
		}
	}
	switch status := h.PseudoValue("status"); {
	case s.answered: // trailers
	case status != "200" || encoding != "" && encoding != "gzip":
		c.over(s, fmt.Errorf("watch answered %s, content encoding %q", status, encoding))
		return
	default:
		c.waiting--
		s.answered = true
		if encoding == "gzip" {
			s.scan.inflate = new(inflater)
		}
	}
	if h.StreamEnded() {
		c.over(s, errEnded)
	}
}

// data takes a part of an answer's body. Without a watch, only the window is given back.
func (c *streams) data(s *stream, f *http2.DataFrame) (err error) {
	p := f.Data()
	switch {
	case s == nil:
		_, err = c.giveBack(0, 0, len(p))
		return err
	case s.deaf:
		s.unpaid += len(p)
		_, err = c.giveBack(0, 0, len(p))
	default:
		s.unpaid, err = c.giveBack(s.id, s.unpaid, len(p))
	}
	if err != nil {
		return err
	}
	wrong := s.scan.data(p, func(line []byte) error { return s.count(line, c.tally) })
	if wrong == nil && f.StreamEnded() {
		wrong = errEnded
	}
	if wrong != nil {
		c.over(s, wrong)
	}
	return nil
}

// A resetError reports a stream that the server has reset.
type resetError struct{ code http2.ErrCode }

func (e *resetError) Error() string { return "the server reset the stream: " + e.code.String() }

// over notes that a stream has ended, and why.
func (c *streams) over(s *stream, why error) {
	delete(c.live, s.id)
	s.ended = why
	switch {
	case !s.answered:
		c.waiting--
		if c.refused == nil {
			c.refused = why
		}
	case !s.silent:
		c.reader.lose(why)
	}
}

// cancel ends a watch, and the connection behind the last one.
func (c *streams) cancel(s *stream) {
	c.reader.mu.Lock()
	defer c.reader.mu.Unlock()
	if c.live[s.id] == nil || c.reader.clients[c.sock.FD] != client(c) {
		return
	}
	err := c.framer.WriteRSTStream(s.id, http2.ErrCodeCancel)
	delete(c.live, s.id)
	if err := errors.Join(err, c.flush()); err != nil || len(c.live) == 0 {
		c.reader.closeLocked(c)
	}
}

// hear lets a deaf stream read on.
func (c *streams) hear(s *stream) error {
	c.reader.mu.Lock()
	defer c.reader.mu.Unlock()
	if s.deaf = false; s.ended != nil {
		return nil
	}
	err := c.framer.WriteWindowUpdate(s.id, uint32(s.unpaid))
	s.unpaid = 0
	return errors.Join(err, c.flush())
}
