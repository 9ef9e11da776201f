package websocket

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"unsafe"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// clientFrame returns a masked frame.
func clientFrame(first byte, payload string) []byte {
	return maskedFrame(first, uint64(len(payload)), []byte(payload))
}

// maskedFrame returns a masked frame that announces length bytes and has these of them.
func maskedFrame(first byte, length uint64, payload []byte) []byte {
	b := []byte{first}
	switch {
	case length <= maxShortLength:
		b = append(b, maskBit|byte(length))
	case length < 1<<16:
		b = binary.BigEndian.AppendUint16(append(b, maskBit|length16), uint16(length))
	default:
		b = binary.BigEndian.AppendUint64(append(b, maskBit|length64), length)
	}
	key := [4]byte{0x11, 0x22, 0x33, 0x44}
	b = append(b, key[:]...)
	for i, c := range payload {
		b = append(b, c^key[i%4])
	}
	return b
}

// The headers are those that kube-apiserver sends.
func TestHeader(t *testing.T) {
	for n, want := range map[int]string{
		0: "\x81\x00", 125: "\x81\x7d", 126: "\x81\x7e\x00\x7e", 424: "\x81\x7e\x01\xa8", 65535: "\x81\x7e\xff\xff",
		65536: "\x81\x7f\x00\x00\x00\x00\x00\x01\x00\x00", 100433: "\x81\x7f\x00\x00\x00\x00\x00\x01\x88\x51",
	} {
		got := appendHeader(nil, opText, n)
		if string(got) != want {
			t.Errorf("%d: got % x, want % x", n, got, want)
		}
		var h header
		for i := range got { // byte by byte
			rest, whole := h.take(got[i : i+1])
			if len(rest) > 0 || whole != (i == len(got)-1) {
				t.Fatalf("%d: byte %d: %d bytes left, whole %v", n, i, len(rest), whole)
			}
		}
		if h.length() != uint64(n) || h.opcode() != opText || h.masked() {
			t.Errorf("%d: read as %d, opcode %x", n, h.length(), h.opcode())
		}
	}
}

// Each chunk of a batch is one message, in the chunk's own memory.
func TestBatch(t *testing.T) {
	long := bytes.Repeat([]byte("x"), 70_000)
	chunks := [][]byte{
		[]byte("5\r\n{\"a\"}\r\n"), []byte("c\r\n{\"object\":"), []byte("1}\r\n"),
		slices.Concat([]byte("11170\r\n"), long, []byte("\r\n")),
	}
	chunks = append(chunks, framing.ErrorFrame(framing.Protobuf, []byte("status")).Body)
	var b Batch
	for range 2 { // the memory is used again
		if err := b.Frame(exchange.Messages{}, chunks[:4]); err != nil {
			t.Fatal(err)
		}
		want := slices.Concat([]byte("\x81\x05{\"a\"}\x81\x0c{\"object\":1}\x81\x7f\x00\x00\x00\x00\x00\x01\x11\x70"), long)
		if got := bytes.Join(b.Slices, nil); !bytes.Equal(got, want) {
			t.Errorf("got %.60q, %d bytes, want %.60q, %d bytes", got, len(got), want, len(want))
		}
		if &b.Slices[1][0] != &chunks[0][3] {
			t.Error("a payload was copied")
		}
		b.Reset(false)
	}
	if err := b.Frame(exchange.Messages{Binary: true, Prefix: 4}, chunks[4:]); err != nil {
		t.Fatal(err)
	}
	payload := chunks[4][4 : len(chunks[4])-2]
	want := append(appendHeader(nil, opBinary, len(payload)-4), payload[4:]...)
	if got := bytes.Join(b.Slices, nil); !bytes.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
	if got := Message(exchange.Messages{Binary: true, Prefix: 4}, payload); !bytes.Equal(got, want) {
		t.Errorf("one message: got %q, want %q", got, want)
	}
	for _, bad := range []string{"5\r\n{\"a\"}", "1\r\nabc\r\n", "", "3\r\nabc\r\n"} {
		if err := b.Frame(exchange.Messages{Prefix: 4}, [][]byte{[]byte(bad)}); err == nil {
			t.Errorf("%q is taken for chunks", bad)
		}
	}
}

// Headers that are still in use are not overwritten.
func TestBatchKeepsHeaders(t *testing.T) {
	var b Batch
	chunk := [][]byte{[]byte("3\r\nabc\r\n")}
	if err := b.Frame(exchange.Messages{}, chunk); err != nil {
		t.Fatal(err)
	}
	kept := slices.Clone(b.Slices)
	b.Reset(true)
	for range 1000 { // more headers than fit into one piece of memory
		if err := b.Frame(exchange.Messages{Binary: true}, chunk); err != nil {
			t.Fatal(err)
		}
	}
	if got := string(bytes.Join(kept, nil)); got != "\x81\x03abc" {
		t.Errorf("got %q", got)
	}
	if got := bytes.Join(b.Slices, nil); !bytes.Equal(got, bytes.Repeat([]byte("\x82\x03abc"), 1000)) {
		t.Errorf("got %.50q…, %d bytes", got, len(got))
	}
}

// A shard's batch costs no allocation.
func TestBatchAllocs(t *testing.T) {
	var b Batch
	chunks := [][]byte{[]byte("3\r\nabc\r\n"), []byte("3\r\na"), []byte("bc\r\n")}
	if n := testing.AllocsPerRun(100, func() {
		if b.Frame(exchange.Messages{}, chunks) != nil {
			t.Error("not framed")
		}
		b.Reset(false)
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

// An open WebSocket costs what its comment says, and may send what it says.
func TestReceiverBounds(t *testing.T) {
	if got := unsafe.Sizeof(Receiver{}); got != 48 {
		t.Errorf("%d bytes", got)
	}
	if _, over := new(Receiver).Receive(nil, maskedFrame(0x82, maxMessage, nil)); over {
		t.Error("a message of 32 MiB is too long")
	}
}

// A CLOSE may follow whole frames only, and no other CLOSE.
func TestProgress(t *testing.T) {
	text := append(appendHeader(nil, opText, 3), "abc"...)
	long := append(appendHeader(nil, opBinary, 200), bytes.Repeat([]byte("x"), 200)...)
	for name, c := range map[string]struct {
		passed   string
		want     bool
		messages []string
	}{
		"nothing": {"", true, nil}, "a frame": {string(text), true, []string{"abc"}},
		"two":           {string(text) + string(long), true, []string{"abc", "xxxxxxxxxxxxxxxxxxxx"}},
		"half a header": {"\x81", false, nil}, "half a long header": {"\x81\x7e\x01", false, nil}, "a header": {"\x81\x03", false, nil},
		"half a frame": {string(text[:4]), false, nil}, "a close": {CloseNormal, false, nil},
		"a frame and a close": {string(text) + CloseNormal, false, []string{"abc"}},
		"an empty frame":      {"\x8a\x00", true, nil}, "an empty message": {"\x81\x00", true, []string{""}},
		"a message in two frames": {"\x01\x01a\x80\x01b", true, []string{"", ""}},
	} {
		for _, step := range []int{1, 2, 100} {
			var g Progress
			var messages []string
			for part := range slices.Chunk([]byte(c.passed), step) {
				g.Pass(part, func(start string) { messages = append(messages, start) })
			}
			if got := g.MayClose(); got != c.want || !slices.Equal(messages, c.messages) {
				t.Errorf("%s, %d bytes at a time: %v, messages %q", name, step, got, messages)
			}
		}
	}
}
