package http2

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"io"
	"math/rand/v2"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	wire "golang.org/x/net/http2"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// miser is a client that opens windows little by little, closes them again with SETTINGS, pauses,
// and resets some streams. It checks that nothing is sent beyond a window.
type miser struct {
	*peer
	rand *rand.Rand

	mu      sync.Mutex // guards the rest, and writes
	window  int        // of the connection
	initial int        // window of a new stream, as the proxy has acknowledged it
	asked   []int      // initial windows that are not acknowledged yet
	streams map[uint32]*miserStream
	open    int // number of streams without an end
	acts    int // frames that ask for nothing
	bytes   int // of DATA
}

// miserStream is one watch of a miser.
type miserStream struct {
	window       int
	got          bytes.Buffer
	reset, ended bool
}

// read reads frames until no stream is open.
func (m *miser) read(pauses *rand.Rand) {
	for {
		f, err := m.framer.ReadFrame()
		if err != nil {
			m.t.Errorf("the connection ended: %v", err)
			return
		}
		if m.handle(f) == 0 {
			return
		}
		if pauses.IntN(200) == 0 {
			time.Sleep(5 * time.Millisecond) //testlint:allow timer the socket fills up, which is not asserted
		}
	}
}

// handle handles a frame, and returns the number of open streams.
func (m *miser) handle(f wire.Frame) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	switch f := f.(type) {
	case *wire.SettingsFrame:
		if f.IsAck() {
			for _, st := range m.streams {
				st.window += m.asked[0] - m.initial
			}
			m.initial, m.asked = m.asked[0], m.asked[1:]
		}
	case *wire.DataFrame:
		st := m.streams[f.StreamID]
		n := len(f.Data())
		m.window, m.bytes = m.window-n, m.bytes+n
		if st.window -= n; n > 0 && (st.window < 0 || m.window < 0) {
			m.t.Errorf("stream %d: %d bytes beyond a window: %d, %d", f.StreamID, n, st.window, m.window)
		}
		st.got.Write(f.Data())
		if f.StreamEnded() && !st.reset {
			st.ended = true
			m.open--
		}
	case *wire.RSTStreamFrame, *wire.GoAwayFrame:
		m.t.Errorf("got %v", f)
	}
	return m.open
}

// act opens or closes a window, or resets a stream. Then it waits, for longer once it has sent more frames than
// type calm allows at once for what has come, however slowly that comes.
func (m *miser) act() (open int) {
	m.mu.Lock()
	wait := time.Millisecond
	if m.acts++; m.acts >= framesAtOnce/2+m.bytes/bytesPerFrame {
		wait = 2 * time.Second / framesPerSec
	}
	defer time.Sleep(wait) //testlint:allow timer another mix of events and windows
	defer m.mu.Unlock()
	id := uint32(2*m.rand.IntN(len(m.streams)) + 1)
	st := m.streams[id]
	sizes := []int{1, 10, 1000, 20_000, 100_000, 200_000}
	size := sizes[m.rand.IntN(len(sizes))]
	switch action := m.rand.IntN(100); {
	case action < 30:
		m.window += size
		_ = m.framer.WriteWindowUpdate(0, uint32(size))
	case action < 85 && st.window < 1<<20 && !st.reset && !st.ended:
		st.window += size
		_ = m.framer.WriteWindowUpdate(id, uint32(size))
	case action < 99:
		size-- // 0 too
		m.asked = append(m.asked, size)
		_ = m.framer.WriteSettings(wire.Setting{ID: wire.SettingInitialWindowSize, Val: uint32(size)})
	case id%4 == 3 && !st.reset && !st.ended:
		st.reset = true
		m.open--
		_ = m.framer.WriteRSTStream(id, wire.ErrCodeCancel)
	}
	return m.open
}

// versions returns the resourceVersions of the events that a stream has brought.
func (st *miserStream) versions(t *testing.T, zipped bool) (all []string) {
	var from io.Reader = &st.got
	if zipped {
		plain, err := gzip.NewReader(&st.got)
		if err != nil {
			if !st.reset {
				t.Error(err)
			}
			return nil
		}
		from = plain
	}
	body, err := io.ReadAll(from)
	if err != nil && !st.reset {
		t.Error(err)
	}
	for _, found := range regexp.MustCompile(`"resourceVersion":"(\d+)"`).FindAllSubmatch(body, -1) {
		all = append(all, string(found[1]))
	}
	return all
}

// Whatever windows do, each watch is sent each event once and in order, and its proper end. Half of
// the watches are compressed.
func TestRandomWindows(t *testing.T) {
	rng := steady.Rand(t)
	cache, flusher := newCache(t)
	everything, _ := fanout.NewFilter("", nil, nil, nil)
	const streams, events = 20, 60
	began := make(chan struct{}, streams)
	w := newWorld(t, func(x *exchange.Exchange) {
		_ = x.Conn.TCP().SetWriteBuffer(4096)
		zipped := x.Target == "/zipped"
		sub, err := cache.Subscribe(fanout.Request{Filter: everything, Timeout: time.Hour, Gzip: zipped})
		if err != nil {
			t.Error(err)
			return
		}
		if zipped {
			x.Response.First = framing.GzipStart
		}
		x.Response.Stream = &subscribed{flusher, sub, began}
	})
	m := &miser{
		peer: w.dial(), rand: rand.New(rand.NewPCG(rng.Uint64(), 1)), window: defaultWindow, initial: defaultWindow,
		asked: []int{defaultWindow}, streams: make(map[uint32]*miserStream), open: streams,
	}
	_ = m.conn.SetDeadline(time.Now().Add(steady.Patience))
	for i := range streams {
		m.streams[uint32(2*i+1)] = &miserStream{window: defaultWindow}
		m.get(uint32(2*i+1), []string{"/plain", "/zipped"}[i%2])
		<-began
	}
	var reading sync.WaitGroup
	reading.Go(func() { m.read(rand.New(rand.NewPCG(rng.Uint64(), 3))) })
	sizes := rand.New(rand.NewPCG(rng.Uint64(), 2))
	go func() {
		scanner := framing.NewScanner(framing.JSON, nil)
		for i := range events {
			ev, err := scanner.Event(fmt.Appendf(nil, `{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1",`+
				`"metadata":{"name":"x","resourceVersion":"%d"},"data":%q}}`+"\n", 101+i, strings.Repeat("x", sizes.IntN(30_000))))
			if err != nil {
				t.Error(err)
			}
			if err := cache.Apply(ev, time.Now()); err != nil {
				t.Error(err)
			}
			time.Sleep(time.Duration(sizes.IntN(5)) * time.Millisecond) //testlint:allow timer another mix of events and windows
		}
		cache.Close(fanout.Ending{Reason: fanout.LaneClosed, Graceful: true})
	}()
	for m.act() > 0 && !t.Failed() { // until all streams have ended
	}
	reading.Wait()
	for id, st := range m.streams {
		all := st.versions(t, id%4 == 3)
		for i, rv := range all {
			if rv != fmt.Sprint(101+i) {
				t.Fatalf("stream %d: event %d has the resourceVersion %s", id, i, rv)
			}
		}
		if st.ended && len(all) != events {
			t.Errorf("stream %d: %d events, want %d", id, len(all), events)
		}
	}
}

// Padding takes windows (RFC 9113, section 6.1), and gives them back: a body with more of it than they are wide
// comes whole.
func TestPaddedUpload(t *testing.T) {
	const frames, data, length = 2000, 64, 64 + 1 + 255
	w := newWorld(t, func(x *exchange.Exchange) {
		if n, err := io.Copy(io.Discard, x.Body); n != frames*data || err != nil {
			t.Errorf("got %d bytes, %v", n, err)
		}
	})
	p := w.dial()
	p.head(1, "POST", "/upload", false)
	windows := [2]int{defaultWindow, defaultWindow} // of the connection and of the stream
	for i := range frames {
		for windows[0] < length || windows[1] < length {
			f, err := p.framer.ReadFrame()
			if err != nil {
				t.Fatalf("the windows stay at %d behind %d frames: %v", windows, i, err)
			}
			switch f := f.(type) {
			case *wire.SettingsFrame:
				if initial, ok := f.Value(wire.SettingInitialWindowSize); ok {
					windows[1] += int(initial) - defaultWindow
				}
			case *wire.WindowUpdateFrame:
				windows[f.StreamID] += int(f.Increment)
			}
		}
		_ = p.framer.WriteDataPadded(1, i == frames-1, make([]byte, data), make([]byte, 255))
		windows[0], windows[1] = windows[0]-length, windows[1]-length
	}
	if got := p.status(1); got != "200" {
		t.Errorf("got %s", got)
	}
}
