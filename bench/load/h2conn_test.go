package load

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// A recorder notes what a connection brings. Pieces of data that follow one another are noted as
// one.
type recorder struct {
	story []string
	sent  string
}

func (r *recorder) take(f http2.Frame) error {
	id := f.Header().StreamID
	switch f := f.(type) {
	case *http2.MetaHeadersFrame:
		r.story = append(r.story, fmt.Sprintf("headers %d %s %v", id, f.PseudoValue("status"), f.StreamEnded()))
	case *http2.DataFrame:
		r.data(id, f.Data(), f.StreamEnded())
	case *http2.RSTStreamFrame:
		r.story = append(r.story, fmt.Sprintf("reset %d %v", id, f.ErrCode))
	}
	return nil
}

func (r *recorder) data(id uint32, p []byte, end bool) {
	prefix := fmt.Sprintf("data %d ", id)
	if n := len(r.story); n > 0 && strings.HasPrefix(r.story[n-1], prefix) {
		r.story[n-1] += string(p)
	} else if len(p) > 0 {
		r.story = append(r.story, prefix+string(p))
	}
	if end {
		r.story = append(r.story, fmt.Sprintf("end %d", id))
	}
}

// takeAll feeds wire to a connection in pieces of n bytes.
func takeAll(wire []byte, n int) (*recorder, error) {
	r := new(recorder)
	var sent bytes.Buffer
	h := newH2Conn(conn{rw: &sent}, LargeSteps)
	h.to = r.take
	for len(wire) > 0 {
		k := min(n, len(wire))
		if err := h.feed(wire[:k]); err != nil {
			return r, err
		}
		wire = wire[k:]
	}
	r.sent = sent.String()
	return r, nil
}

// sampleWire is a connection with frames of all kinds.
func sampleWire(t testing.TB) []byte {
	var wire, block bytes.Buffer
	f := http2.NewFramer(&wire, nil)
	e := hpack.NewEncoder(&block)
	for _, field := range []hpack.HeaderField{
		{Name: ":status", Value: "200"}, {Name: "content-type", Value: "application/json"},
	} {
		if err := e.WriteField(field); err != nil {
			t.Fatal(err)
		}
	}
	head := block.Bytes()
	for _, err := range []error{
		f.WriteSettings(http2.Setting{ID: http2.SettingMaxConcurrentStreams, Val: 100}),
		f.WriteSettingsAck(),
		f.WriteWindowUpdate(0, 1000),
		f.WriteHeaders(http2.HeadersFrameParam{StreamID: 1, BlockFragment: head[:1]}),
		f.WriteContinuation(1, false, head[1:3]),
		f.WriteContinuation(1, true, head[3:]),
		f.WriteData(1, false, []byte("ab")),
		f.WriteDataPadded(1, false, []byte("c"), make([]byte, 10)),
		f.WriteData(3, false, bytes.Repeat([]byte("x"), 12_000)),
		f.WritePing(false, [8]byte{1, 2, 3}),
		f.WriteData(3, true, bytes.Repeat([]byte("x"), 8_000)),
		f.WriteRawFrame(0xfa, 0xff, 7, []byte("of an unknown type")),
		f.WriteData(1, false, nil),
		f.WriteData(1, false, []byte("de")),
		f.WriteRSTStream(1, http2.ErrCodeCancel),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	return wire.Bytes()
}

// TestH2ConnAnswers: frames of all kinds are read, settings and pings are answered, and what is read is
// given back in steps.
func TestH2ConnAnswers(t *testing.T) {
	got, err := takeAll(sampleWire(t), 100)
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"headers 1 200 false", "data 1 abc", "data 3 " + strings.Repeat("x", 20_000), "end 3", "data 1 de", "reset 1 CANCEL"}
	if !slices.Equal(got.story, want) {
		t.Errorf("got %.300q want %.300q", got.story, want)
	}
	const settings = "\x00\x00\x00\x04\x01\x00\x00\x00\x00"
	const ping = "\x00\x00\x08\x06\x01\x00\x00\x00\x00\x01\x02\x03\x00\x00\x00\x00\x00"
	if want := settings + ping; got.sent != want {
		t.Errorf("sent %q want %q", got.sent, want)
	}
	steps := Flow{stream: 100, connection: 1000, streamStep: 50, connectionStep: 120}
	h := newH2Conn(conn{rw: new(bytes.Buffer)}, steps)
	unpaid := 0
	for range 3 {
		if unpaid, err = h.giveBack(7, unpaid, 49); err != nil {
			t.Fatal(err)
		}
	}
	const ofStream = "\x00\x00\x04\x08\x00\x00\x00\x00\x07\x00\x00\x00\x62"
	if want := ofStream + "\x00\x00\x04\x08\x00\x00\x00\x00\x00\x00\x00\x00\x93"; h.out.String() != want {
		t.Errorf("gave back %q want %q", h.out.String(), want)
	}
	if unpaid != 49 {
		t.Errorf("the stream owes %d want 49", unpaid)
	}
}

// TestH2ConnFails: what the client cannot go on with ends the connection.
func TestH2ConnFails(t *testing.T) {
	f := func(want, wire string) {
		t.Helper()
		if _, err := takeAll([]byte(wire), 5); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v want %q", err, want)
		}
	}
	f("the server goes away: ENHANCE_YOUR_CALM", "\x00\x00\x08\x07\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x0b")
	f("more than 1048576 bytes", "\x7f\xff\xff\x04\x00\x00\x00\x00\x00"+strings.Repeat("s", 1<<23))
	f("more than 1048576 bytes", strings.Repeat("\x00\xff\xff\x09\x00\x00\x00\x00\x01"+strings.Repeat("c", 0xffff), 20))
	f("FRAME_SIZE_ERROR", "\x00\x00\x01\x06\x00\x00\x00\x00\x00\x00")
}

func FuzzH2Conn(f *testing.F) {
	f.Add([]byte(nil), uint16(1))
	f.Add(sampleWire(f), uint16(100))
	const endless = "\x00\x00\x00\x01\x00\x00\x00\x00\x01\x00\x00\x00\x09\x00\x00\x00\x00\x01" // headers
	f.Add([]byte(endless), uint16(3))
	f.Fuzz(func(t *testing.T, wire []byte, n uint16) {
		whole, err := takeAll(wire, max(len(wire), 1))
		pieces, alsoErr := takeAll(wire, int(n)+1)
		if (err == nil) != (alsoErr == nil) || fmt.Sprint(whole.story) != fmt.Sprint(pieces.story) {
			t.Errorf("whole: %v %q\nin pieces of %d: %v %q", err, whole.story, n+1, alsoErr, pieces.story)
		}
	})
}
