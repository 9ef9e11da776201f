package http2

import (
	"bytes"
	"errors"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// failing is a body that breaks off.
type failing struct{ io.Reader }

func (f failing) Read(p []byte) (int, error) {
	n, err := f.Reader.Read(p)
	if err == io.EOF {
		err = errors.New("broken off")
	}
	return n, err
}

func (failing) Close() error { return nil }

// testStream is a watch whose sink the test writes to.
type testStream struct {
	sinks chan fanout.Sink
	ends  chan bool

	mu   sync.Mutex
	sink fanout.Sink
	left bool
}

func newTestStream() *testStream {
	return &testStream{sinks: make(chan fanout.Sink, 1), ends: make(chan bool, 1)}
}

func (s *testStream) Begin(sink fanout.Sink) {
	s.mu.Lock()
	s.sink = sink
	left := s.left
	s.mu.Unlock()
	if left {
		sink.End(fanout.Gone, false)
		return
	}
	s.sinks <- sink
}

func (s *testStream) Gone() {
	s.mu.Lock()
	s.left = true
	sink := s.sink
	s.mu.Unlock()
	if sink != nil {
		sink.End(fanout.Gone, false)
	}
}

func (s *testStream) Keep(int64) bool                    { return true }
func (s *testStream) Evict(fanout.State)                 {}
func (s *testStream) End(_ fanout.Reason, complete bool) { s.ends <- complete }

func chunk(s string) [][]byte {
	return [][]byte{framing.ErrorFrame(framing.JSON, []byte(s)).Body}
}

// long is a body of many slices, of 3 MB.
var long = func() (b exchange.BodySlices) {
	for range 3000 {
		b = append(b, bytes.Repeat([]byte("x"), 1000))
	}
	return b
}()

// testTurn is a turn that must be given back before it is taken again.
type testTurn struct{ held bool }

func (t *testTurn) Resume() error {
	if t.held {
		panic("resumed twice")
	}
	t.held = true
	return nil
}

func (t *testTurn) Give() { t.held = false }

// echo answers in the form that the path names.
func echo(x *exchange.Exchange) {
	switch path, _, _ := strings.Cut(x.Target, "?"); path {
	case "/body":
		x.Response.Body = exchange.BodySlices{[]byte("he"), nil, []byte("llo")}
	case "/long":
		x.Response.Body = append(exchange.BodySlices(nil), long...)
	case "/turns":
		x.Response.Body = append(exchange.BodySlices{nil, bytes.Repeat([]byte("y"), 700_000)}, long...)
		x.Response.Turn = &testTurn{}
	case "/wide":
		x.Response.Header.Add("Wide", strings.Repeat("w", 3*maxFrame))
	case "/none":
		x.Response.Status = http.StatusNoContent
	case "/reader":
		x.Response.Reader, x.Response.Length = io.NopCloser(strings.NewReader("hello")), 5
	case "/unknown":
		x.Response.Reader, x.Response.Length = io.NopCloser(strings.NewReader("hello")), -1
	case "/short":
		x.Response.Reader, x.Response.Length = io.NopCloser(strings.NewReader("hello")), 6
	case "/broken":
		x.Response.Reader, x.Response.Length = failing{strings.NewReader("hello")}, -1
	case "/later":
		x.Response.Later = func(x *exchange.Exchange) {
			x.Response.Reader, x.Response.Length = io.NopCloser(strings.NewReader("hello")), -1
		}
	case "/detached":
		x.Response.Detached = func(to exchange.Responder) {
			to.OnGone(func() {})
			to.Respond(&exchange.Response{Status: 202, Length: -1, Reader: io.NopCloser(strings.NewReader("hello"))})
		}
	case "/unanswered":
		x.Response.Detached = func(exchange.Responder) {}
	case "/upgrade":
		x.Response.Detached = func(to exchange.Responder) {
			if _, err := to.Upgrade(&exchange.Response{Status: 101}); err == nil {
				panic("upgraded")
			}
			to.Respond(&exchange.Response{Status: 400})
		}
	case "/upload":
		var body []byte
		var err error
		if x.Body != nil {
			body, err = io.ReadAll(x.Body)
		}
		if err != nil {
			x.Response.Status = http.StatusBadRequest
		}
		x.Response.Body = exchange.BodySlices{body}
	case "/panic":
		panic("in a handler")
	case "/head":
		var b strings.Builder
		b.WriteString(x.Method + " " + x.Target + "\n")
		for _, f := range x.Header {
			b.WriteString(f.Name + ": " + f.Value + "\n")
		}
		x.Response.Body = exchange.BodySlices{[]byte(b.String())}
	default:
		x.Response.Status = http.StatusNotFound
	}
}

// Each form of response arrives as the handler made it.
func TestResponses(t *testing.T) {
	client := newWorldEcho(t)
	for path, want := range map[string]struct {
		status int
		body   string
		fails  bool
	}{
		"/body":       {200, "hello", false},
		"/long":       {200, strings.Repeat("x", 3_000_000), false},
		"/turns":      {200, strings.Repeat("y", 700_000) + strings.Repeat("x", 3_000_000), false},
		"/wide":       {200, "", false},
		"/none":       {204, "", false},
		"/reader":     {200, "hello", false},
		"/unknown":    {200, "hello", false},
		"/short":      {200, "", true},
		"/broken":     {200, "hello", true},
		"/detached":   {202, "hello", false},
		"/later":      {200, "hello", false},
		"/unanswered": {0, "", true},
		"/upgrade":    {400, "", false},
		"/panic":      {500, "", false},
		"/nowhere":    {404, "", false},
	} {
		for range 3 {
			status, body, err := fetch(client.client(), http.MethodGet, client.url(path), nil)
			if path == "/panic" {
				body = ""
			}
			if status != want.status || (err != nil) != want.fails || !want.fails && body != want.body {
				t.Errorf("%s: got %d, %d bytes, %v", path, status, len(body), err)
			}
		}
		if want.fails {
			continue
		}
		status, body, err := fetch(client.client(), http.MethodHead, client.url(path), nil)
		if status != want.status || body != "" || err != nil {
			t.Errorf("HEAD %s: got %d, %q, %v", path, status, body, err)
		}
	}
}

func newWorldEcho(t *testing.T) *world { return newWorld(t, echo) }

func fetch(client *http.Client, method, url string, body io.Reader) (status int, got string, err error) {
	req, err := http.NewRequest(method, url, body)
	if err != nil {
		return 0, "", err
	}
	resp, err := client.Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	all, err := io.ReadAll(resp.Body)
	return resp.StatusCode, string(all), err
}

// Bodies of all sizes come whole, at once and piece by piece.
func TestUploads(t *testing.T) {
	w := newWorldEcho(t)
	client := w.client()
	var group sync.WaitGroup
	for _, n := range []int{0, 1, 1000, 16 << 10, 300 << 10, 6 << 20} {
		want := strings.Repeat("u", n)
		for _, known := range []bool{true, false} {
			group.Go(func() {
				var body io.Reader = strings.NewReader(want)
				if !known {
					body = io.MultiReader(body)
				}
				if status, got, err := fetch(client, http.MethodPost, w.url("/upload"), body); status != 200 || got != want || err != nil {
					t.Errorf("%d bytes, known %v: got %d, %d bytes, %v", n, known, status, len(got), err)
				}
			})
		}
	}
	group.Wait()
}

// A watch gets its head at once, then what the shard writes, and ends properly.
func TestWatch(t *testing.T) {
	stream := newTestStream()
	w := newWorld(t, func(x *exchange.Exchange) { x.Response.Stream, x.Response.First = stream, framing.GzipStart })
	resp, err := w.client().Get(w.url("/watch"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	sink := <-stream.sinks // without a carrier, each write leaves at once
	if blocked, err := sink.Write(append(chunk("1"), chunk("2")...)); blocked || err != nil {
		t.Errorf("blocked %v, %v", blocked, err)
	}
	sink.End(fanout.TimedOut, true)
	got, err := io.ReadAll(resp.Body)
	want := framing.GzipStart[3:len(framing.GzipStart)-2] +
		"{\"type\":\"ERROR\",\"object\":1}\n{\"type\":\"ERROR\",\"object\":2}\n"
	if string(got) != want || err != nil {
		t.Errorf("got %q, %v, want %q", got, err, want)
	}
	if !<-stream.ends {
		t.Error("not complete")
	}
}

// flush does what a shard does at the end of its round.
func (w *world) flush(sink fanout.Sink) { sink.(*watch).conn.flush() }

// panickingStream panics when it begins.
type panickingStream struct{ *testStream }

func (panickingStream) Begin(fanout.Sink) { panic("begin") }

// panickingBody panics when it is read, and says when it is closed.
type panickingBody struct{ closed chan struct{} }

func (panickingBody) Read([]byte) (int, error) { panic("read") }

func (b panickingBody) Close() error {
	close(b.closed)
	return nil
}

// A panic in what is done for one request resets its stream and nothing else.
func TestPanics(t *testing.T) {
	watch, body := newTestStream(), panickingBody{make(chan struct{})}
	w := newWorld(t, func(x *exchange.Exchange) {
		switch x.Target {
		case "/watch":
			x.Response.Stream = watch
		case "/begin":
			x.Response.Stream = panickingStream{newTestStream()}
		case "/read":
			x.Response.Reader, x.Response.Length = body, 5
		case "/detached":
			x.Response.Detached = func(exchange.Responder) { panic("in a response that lasts") }
		}
	})
	client := w.client()
	resp, err := client.Get(w.url("/watch"))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	for _, path := range []string{"/begin", "/read", "/detached"} {
		if _, _, err := fetch(client, http.MethodGet, w.url(path), nil); err == nil || !strings.Contains(err.Error(), "INTERNAL_ERROR") {
			t.Errorf("%s: %v", path, err)
		}
	}
	<-body.closed
	sink := <-watch.sinks
	if _, err := sink.Write(chunk("1")); err != nil {
		t.Error(err)
	}
	sink.End(fanout.TimedOut, true)
	if got, err := io.ReadAll(resp.Body); len(got) == 0 || err != nil {
		t.Errorf("the other stream: %q, %v", got, err)
	}
}
