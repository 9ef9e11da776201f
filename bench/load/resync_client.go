package load

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"time"

	"github.com/watchfan/watchfan/bench/measure"
)

// A syncer is a client that reads a collection as initial events, up to their end bookmark. It
// belongs to the holder of its reader's mu.
type syncer struct {
	conn
	request string
	objects int  // expected objects
	keep    bool // keep a compressed body, to check it

	head  []byte // of the answer, until it is complete
	body  bool   // the head is complete
	gzip  bool   // the body is compressed
	scan  scanner
	added int
	done  bool
	kept  []byte
	bytes uint64
	last  time.Duration // time of the last bytes, by the reader's clock
}

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

// takeHead takes the head of the answer and returns the bytes after it.
func (c *syncer) takeHead(p []byte) (rest []byte, err error) {
	const most = 16 << 10
	c.head = append(c.head, p...)
	end := bytes.Index(c.head, []byte("\r\n\r\n"))
	switch {
	case end < 0 && len(c.head) > most:
		return nil, errors.New("watch answered with a head of more than 16 KiB")
	case end < 0:
		return nil, nil
	}
	head, rest := c.head[:end+4], c.head[end+4:]
	resp, err := http.ReadResponse(bufio.NewReader(bytes.NewReader(head)), nil)
	if err != nil {
		return nil, err
	}
	c.body, c.head = true, nil
	c.gzip, err = accepted(resp)
	return rest, err
}

// endMark is in the bookmark that ends initial events, and in no other (KEP-3157).
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

// check reports whether everything has come. A compressed body that was not kept is not checked.
func (c *syncer) check() error {
	if c.gzip && c.keep && !c.done {
		c.scan.inflate = new(inflater)
		if err := c.scan.feed(c.kept, c.event); err != nil {
			return err
		}
		c.kept = nil
	}
	switch {
	case c.gzip && !c.keep:
		return nil
	case !c.done:
		return fmt.Errorf("no end bookmark; %d objects came", c.added)
	}
	return c.complete()
}

// Syncers are clients that resync at the same time. One reader reads them.
type Syncers struct {
	all    []*syncer
	reader *reader
	start  time.Time
}

// A PodSelection is the pods that a client asks for.
type PodSelection struct {
	Query   string // "" or "&fieldSelector=…", and more parameters
	Objects int    // that there are
	View    string // "" or "/views/lean", at watchfan
}

// NewSyncers connects n clients, which do not ask yet. Client i will ask for the pods of wants(i).
// The first one keeps a compressed stream, to check it.
func NewSyncers(e Endpoint, n int, gzip bool, wants func(i int) PodSelection) (*Syncers, error) {
	r, err := newReader(NewAcks())
	if err != nil {
		return nil, err
	}
	r.start()
	s := &Syncers{reader: r}
	for i := range n {
		c, err := open(measure.Dialer{Receive: 128 << 10}, e) // the initial receive buffer of a client
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("client %d: %w", i, err)
		}
		want := wants(i)
		s.all = append(s.all, &syncer{conn: c, request: RequestHead(e, want.View+resyncURI+want.Query, gzip), objects: want.Objects, keep: i == 0})
		if err := r.add(s.all[i], nil); err != nil {
			s.Close()
			return nil, err
		}
	}
	return s, nil
}

// resyncURI watches all pods, with initial events of the latest state.
const resyncURI = PodsPath +
	"?watch=1&allowWatchBookmarks=true&sendInitialEvents=true&resourceVersionMatch=NotOlderThan"

// AllPods returns the selection of all n pods.
func AllPods(n int) func(int) PodSelection {
	return func(int) PodSelection { return PodSelection{Objects: n} }
}

// Measure lets all clients ask, one right after the other, waits until every client has all, and checks
// what they have. It returns what the processes used until the last bytes came, and how long that took.
func (s *Syncers) Measure(ctx context.Context, processes []measure.Process) (
	used measure.Usage, wall time.Duration, err error) {
	meter, err := measure.StartMeter(processes)
	if err != nil {
		return used, 0, err
	}
	s.start = time.Now()
	for _, c := range s.all {
		if _, err := io.WriteString(c.rw, c.request); err != nil {
			return used, 0, err
		}
	}
	wall, err = s.await(ctx, func() (err error) {
		used, err = meter.Read()
		return err
	})
	if err == nil {
		err = s.check()
	}
	return used, wall, err
}

// await waits until all clients have got everything, and returns the time of the last. A plain
// stream is complete at its end bookmark. A compressed stream counts as complete when it is silent.
// await calls progress while bytes come.
func (s *Syncers) await(ctx context.Context, progress func() error) (time.Duration, error) {
	for seen := time.Duration(0); ; {
		if err := Sleep(ctx, 20*time.Millisecond); err != nil {
			return 0, fmt.Errorf("%d of %d clients done after %v: %w", s.done(), len(s.all), time.Since(s.start).Round(time.Second), err)
		}
		if err := s.reader.err(); err != nil {
			return 0, err
		}
		last, waiting := s.last()
		if last > seen {
			seen = last
			if err := progress(); err != nil {
				return 0, err
			}
		}
		if !waiting {
			return last - s.start.Sub(s.reader.acks.start), nil
		}
	}
}

// last returns when the last bytes came, and whether more must come.
func (s *Syncers) last() (last time.Duration, waiting bool) {
	const silence = 6 * time.Second // a server waits less than this for a proof that its data are current
	s.reader.mu.Lock()
	defer s.reader.mu.Unlock()
	for _, c := range s.all {
		quiet := c.gzip && c.bytes > 0 && s.reader.acks.now()-c.last > silence
		waiting = waiting || !c.done && !quiet
		last = max(last, c.last)
	}
	return last, waiting
}

// done returns the number of clients that are done.
func (s *Syncers) done() (n int) {
	s.reader.mu.Lock()
	defer s.reader.mu.Unlock()
	for _, c := range s.all {
		if c.done {
			n++
		}
	}
	return n
}

// check reports whether the clients got everything. It decompresses the first of compressed
// streams. The others must be about as long.
func (s *Syncers) check() error {
	s.reader.mu.Lock()
	defer s.reader.mu.Unlock()
	for i, c := range s.all {
		if err := c.check(); err != nil {
			return fmt.Errorf("client %d: %w", i, err)
		}
		if first := s.all[0].bytes; c.bytes < first*9/10 {
			return fmt.Errorf("client %d got %d bytes, where the first got %d", i, c.bytes, first)
		}
	}
	return nil
}

// Compressed reports whether an answer was compressed.
func (s *Syncers) Compressed() bool {
	return slices.ContainsFunc(s.all, func(c *syncer) bool { return c.gzip })
}

// Bytes returns the bytes of all answers.
func (s *Syncers) Bytes() (sum uint64) {
	s.reader.mu.Lock()
	defer s.reader.mu.Unlock()
	for _, c := range s.all {
		sum += c.bytes
	}
	return sum
}

// Close ends all clients.
func (s *Syncers) Close() {
	s.reader.close()
	for _, c := range s.all {
		s.reader.remove(c)
	}
}
