package websocket

import (
	"bytes"
	"encoding/binary"
	"slices"
	"testing"
	"unsafe"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/exchange"
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

// The reactions are those of kube-apiserver, however the bytes are cut.
func TestReceiver(t *testing.T) {
	long := string(bytes.Repeat([]byte("p"), 300))
	for name, c := range map[string]struct {
		sent, want string
		over       bool
	}{
		"ping":                  {string(clientFrame(0x89, "hi")), "\x8a\x02hi", false},
		"empty ping":            {string(clientFrame(0x89, "")), "\x8a\x00", false},
		"long ping":             {string(clientFrame(0x89, long)), "\x8a\x7d" + long[:125], false},
		"two pings":             {string(clientFrame(0x89, "a")) + string(clientFrame(0x89, "b")), "\x8a\x01a\x8a\x01b", false},
		"pong":                  {string(clientFrame(0x8a, "x")), "", false},
		"text":                  {string(clientFrame(0x81, "x")), "", false},
		"bad UTF-8":             {string(clientFrame(0x81, "\xff")), "", false},
		"fragments":             {string(clientFrame(0x01, "x")) + string(clientFrame(0x80, "y")), "", false},
		"RSV1":                  {string(clientFrame(0xc1, "x")), "", false},
		"opcode 3":              {string(clientFrame(0x83, "x")), "", false},
		"text, then ping":       {string(clientFrame(0x82, long)) + string(clientFrame(0x89, "x")), "\x8a\x01x", false},
		"close":                 {string(clientFrame(0x88, "\x03\xe8")), CloseNormal, true},
		"ping, then close":      {string(clientFrame(0x89, "")) + string(clientFrame(0x88, "")), "\x8a\x00" + CloseNormal, true},
		"close, half of it":     {string(maskedFrame(0x88, 2, nil)), CloseNormal, true},
		"not masked":            {"\x81\x01x", "\x88\x02\x03\xea" + CloseNormal, true},
		"close, not masked":     {"\x88\x00", "\x88\x02\x03\xea" + CloseNormal, true},
		"32 MiB":                {string(maskedFrame(0x82, maxMessage, nil)), "", false},
		"over 32 MiB":           {string(maskedFrame(0x82, maxMessage+1, nil)), CloseNormal, true},
		"over 32 MiB, opcode 3": {string(maskedFrame(0x83, maxMessage+1, nil)), CloseNormal, true},
		"ping of 2⁶³-1 bytes":   {string(maskedFrame(0x89, 1<<63-1, nil)), "", false},
	} {
		for _, step := range []int{1, 3, 1 << 20} {
			var r Receiver
			got, over := []byte(nil), false
			for part := range slices.Chunk([]byte(c.sent), step) {
				if got, over = r.Receive(got, part); over {
					break
				}
			}
			if string(got) != c.want || over != c.over {
				t.Errorf("%s, %d bytes at a time: got % x, %v, want % x, %v", name, step, got, over, c.want, c.over)
			}
		}
	}
}

// An open WebSocket costs what its comment says.
func TestReceiverSize(t *testing.T) {
	if got := unsafe.Sizeof(Receiver{}); got != 48 {
		t.Errorf("%d bytes", got)
	}
}

// A CLOSE may follow whole frames only, and no other CLOSE.
func TestProgress(t *testing.T) {
	text := append(appendHeader(nil, opText, 3), "abc"...)
	for name, c := range map[string]struct {
		passed string
		want   bool
	}{
		"nothing": {"", true}, "a frame": {string(text), true}, "two": {string(text) + string(text), true},
		"half a header": {"\x81", false}, "half a long header": {"\x81\x7e\x01", false}, "a header": {"\x81\x03", false},
		"half a frame": {string(text[:4]), false}, "a close": {CloseNormal, false}, "a frame and a close": {string(text) + CloseNormal, false},
		"an empty frame": {"\x8a\x00", true},
	} {
		for _, step := range []int{1, 2, 100} {
			var g Progress
			for part := range slices.Chunk([]byte(c.passed), step) {
				g.Pass(part)
			}
			if got := g.MayClose(); got != c.want {
				t.Errorf("%s, %d bytes at a time: %v", name, step, got)
			}
		}
	}
}

// FuzzReceiver compares the answers to a client's bytes with those of a slower reader, which sees
// all of them at once.
func FuzzReceiver(f *testing.F) {
	f.Add(clientFrame(0x89, "hi"), uint8(1))
	f.Add(append(clientFrame(0x81, "text"), clientFrame(0x88, "\x03\xe8")...), uint8(3))
	f.Add([]byte("\x81\x01x"), uint8(2))
	f.Add(maskedFrame(0x82, maxMessage+1, []byte("x")), uint8(9))
	f.Add(maskedFrame(0x89, 200, bytes.Repeat([]byte("p"), 200)), uint8(50))
	f.Fuzz(func(t *testing.T, sent []byte, step uint8) {
		want, wantOver := receiveAll(sent)
		var r Receiver
		var got []byte
		over := false
		for part := range slices.Chunk(sent, int(step)+1) {
			before := len(got)
			if got, over = r.Receive(got, part); over {
				break
			}
			if len(got)-before > len(part)+maxControl+maxHeader {
				t.Fatalf("%d bytes answer %d", len(got)-before, len(part))
			}
			if len(r.ping) > maxControl {
				t.Fatalf("keeps %d bytes", len(r.ping))
			}
		}
		if !bytes.Equal(got, want) || over != wantOver {
			t.Fatalf("got % x, %v, want % x, %v", got, over, want, wantOver)
		}
	})
}

// receiveAll answers a client's bytes frame by frame.
func receiveAll(b []byte) (answers []byte, over bool) {
	for len(b) >= 2 {
		op, masked, length, n := b[0]&0xf, b[1]&0x80 != 0, uint64(b[1]&0x7f), 2
		switch length {
		case 126:
			n = 4
		case 127:
			n = 10
		}
		if len(b) < n || masked && len(b) < n+4 {
			break
		}
		if n > 2 {
			length = 0
			for _, c := range b[2:n] {
				length = length<<8 | uint64(c)
			}
			length &^= 1 << 63
		}
		control := op == 9 || op == 10
		switch {
		case !masked:
			return append(answers, "\x88\x02\x03\xea\x88\x02\x03\xe8"...), true
		case op == 8, !control && length > 32<<20:
			return append(answers, "\x88\x02\x03\xe8"...), true
		}
		key, payload := b[n:n+4], b[n+4:]
		if uint64(len(payload)) < length {
			break
		}
		if op == 9 {
			cut := min(length, 125)
			answers = append(answers, 0x8a, byte(cut))
			for i, c := range payload[:cut] {
				answers = append(answers, c^key[i%4])
			}
		}
		b = payload[length:]
	}
	return answers, false
}
