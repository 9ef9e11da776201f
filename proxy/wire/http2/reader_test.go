package http2

import (
	"bytes"
	"testing"

	wire "golang.org/x/net/http2"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Frames that come together are answered together, and the last frame need not be whole for that.
func TestFramesReadAhead(t *testing.T) {
	p := newWorld(t, func(*exchange.Exchange) {}).dial()
	p.ping()
	const pings = maxReplies // 1,700 bytes
	var frames bytes.Buffer
	framer := wire.NewFramer(&frames, nil)
	for i := range pings {
		_ = framer.WritePing(false, [8]byte{2, byte(i)})
	}
	whole := frames.Len()
	_ = framer.WritePing(false, [8]byte{3})
	before := p.tap.records()
	for _, half := range [][]byte{frames.Bytes()[:whole+5], frames.Bytes()[whole+5:]} {
		if _, err := p.conn.Write(half); err != nil {
			t.Fatal(err)
		}
		want := [8]byte{3}
		if len(half) > whole {
			want = [8]byte{2, pings - 1}
		}
		p.pinged(want)
	}
	if n := p.tap.records() - before; n > 4 {
		t.Errorf("%d pings were answered in %d records", pings+1, n)
	}
}
