//go:build linux

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
	"strconv"
	"sync"
	"sync/atomic"
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
	if err != nil || resp.StatusCode != http.StatusOK || !slices.Contains(resp.TransferEncoding, "chunked") {
		return nil, fmt.Errorf("watch answered %.300q: want 200, chunked", head)
	}
	c.body, c.head, c.gzip = true, nil, resp.Header.Get("Content-Encoding") == "gzip"
	return rest, nil
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
	all     []*syncer
	reader  *reader // nil before they ask
	stop    atomic.Bool
	running sync.WaitGroup

	start time.Time
	mu    sync.Mutex
	lost  error // of the first client lost; guarded by mu
}

// A PodSelection is the pods that a client asks for.
type PodSelection struct {
	Query   string // "" or "&fieldSelector=…", and more parameters
	Objects int    // that there are
	Lean    bool   // without metadata.managedFields
}

// NewSyncers connects n clients, which do not ask yet. Client i will ask for the pods of wants(i).
// The first one keeps a compressed stream, to check it.
func NewSyncers(e Endpoint, n int, gzip bool, wants func(i int) PodSelection) (*Syncers, error) {
	s := new(Syncers)
	for i := range n {
		c, err := open(measure.Dialer{Receive: 128 << 10}, e) // the initial receive buffer of a client
		if err != nil {
			s.Close()
			return nil, fmt.Errorf("client %d: %w", i, err)
		}
		want := wants(i)
		request := RequestHead(e, resyncURI+want.Query, accept("application/json", want.Lean), gzip)
		s.all = append(s.all, &syncer{conn: c, request: request, objects: want.Objects, keep: i == 0})
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

// Ask lets all clients ask, one right after the other, and starts to read the answers.
func (s *Syncers) Ask() error {
	var err error
	if s.reader, err = newReader(NewAcks(), 0, s.lose); err != nil {
		return err
	}
	s.running.Go(func() { s.reader.run(&s.stop) })
	s.start = time.Now()
	for _, c := range s.all {
		if _, err = io.WriteString(c.rw, c.request); err == nil {
			err = s.reader.add(c, nil)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (s *Syncers) lose(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lost == nil {
		s.lost = err
	}
}

// Await waits until all clients have got everything, and returns the time of the last. A plain
// stream is complete at its end bookmark. A compressed stream counts as complete when it is silent.
// await calls progress while bytes come.
func (s *Syncers) Await(ctx context.Context, progress func() error) (time.Duration, error) {
	const silence = 6 * time.Second // a server waits less than this for a proof that its data are current
	for seen := time.Duration(0); ; {
		if err := Sleep(ctx, 20*time.Millisecond); err != nil {
			return 0, fmt.Errorf("%s after %v: %w", s.count(), time.Since(s.start).Round(time.Second), err)
		}
		s.mu.Lock()
		lost := s.lost
		s.mu.Unlock()
		if lost != nil {
			return 0, lost
		}
		s.reader.mu.Lock()
		now, last, waiting := s.reader.acks.now(), time.Duration(0), false
		for _, c := range s.all {
			quiet := c.gzip && c.bytes > 0 && now-c.last > silence
			waiting = waiting || !c.done && !quiet
			last = max(last, c.last)
		}
		s.reader.mu.Unlock()
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

// Measure asks, waits until every client has all, and checks what they have. It returns what the
// processes used until the last bytes came, and how long that took.
func (s *Syncers) Measure(ctx context.Context, processes []measure.Process) (
	used measure.Usage, wall time.Duration, err error) {
	meter, err := measure.StartMeter(processes)
	if err != nil {
		return used, 0, err
	}
	if err := s.Ask(); err != nil {
		return used, 0, err
	}
	wall, err = s.Await(ctx, func() (err error) {
		used, err = meter.Read()
		return err
	})
	if err == nil {
		err = s.check()
	}
	return used, wall, err
}

// count returns the number of clients that are done, in words.
func (s *Syncers) count() string {
	s.reader.mu.Lock()
	defer s.reader.mu.Unlock()
	done := 0
	for _, c := range s.all {
		if c.done {
			done++
		}
	}
	return strconv.Itoa(done) + " of " + strconv.Itoa(len(s.all)) + " clients done"
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

func (s *Syncers) Compressed() bool {
	return slices.ContainsFunc(s.all, func(c *syncer) bool { return c.gzip })
}

func (s *Syncers) Bytes() (sum uint64) {
	s.reader.mu.Lock()
	defer s.reader.mu.Unlock()
	for _, c := range s.all {
		sum += c.bytes
	}
	return sum
}

func (s *Syncers) Close() {
	s.stop.Store(true)
	s.running.Wait()
	for _, c := range s.all {
		if s.reader != nil {
			s.reader.remove(c)
		} else {
			c.sock.Close()
		}
	}
}
