package http2

import (
	"bytes"
	"testing"

	wire "golang.org/x/net/http2"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// What comes of bodies counts for the client's address until the handler knows the client. Beyond the
// bound the stream is reset, and the connection goes on.
func TestBodiesOfStrangers(t *testing.T) {
	own, owned, done := make(chan struct{}), make(chan struct{}), make(chan struct{})
	w := newWorld(t, func(x *exchange.Exchange) {
		x.Conn.EndArrival()
		if x.Target == "/known" {
			<-own
			x.Body.Own()
			close(owned)
			<-done
		} else if x.Target == "/stranger" {
			<-done
		}
	})
	w.server.Ledger = account.New(account.Limits{Each: 3 * maxFrame})
	defer close(done)
	p := w.dial()
	send := func(id uint32, frames int) {
		for range frames {
			_ = p.framer.WriteData(id, false, make([]byte, maxFrame))
		}
	}
	held := func() int64 { return w.server.Ledger.Totals().Held[account.Bodies] }
	p.head(1, "POST", "/known", false)
	send(1, 2)
	p.ping()
	if got := held(); got != 2*maxFrame {
		t.Errorf("%d bytes are counted, want %d", got, 2*maxFrame)
	}
	p.head(3, "POST", "/stranger", false)
	send(3, 2)
	if got := p.status(3); got != wire.ErrCodeEnhanceYourCalm.String() {
		t.Errorf("a body beyond the bound: %s", got)
	}
	p.ping()
	if got := held(); got != 2*maxFrame {
		t.Errorf("%d bytes are counted after the reset, want %d", got, 2*maxFrame)
	}
	close(own)
	<-owned
	if got := held(); got != 0 {
		t.Errorf("%d bytes of a body with an owner are counted", got)
	}
	send(1, 4) // the connection's window is wide now, and the handler counts
	p.ping()
	p.head(5, "POST", "/stranger", false)
	send(5, 1)
	p.ping()
	if freed := w.server.Ledger.Relieve(1, account.Bodies); freed != maxFrame {
		t.Errorf("cut %d bytes", freed)
	}
	if got := p.status(5); got != wire.ErrCodeEnhanceYourCalm.String() {
		t.Errorf("a body that is cut: %s", got)
	}
	p.get(7, "/")
	if got := p.status(7); got != "200" {
		t.Errorf("the connection's next request: %s", got)
	}
}

// A response that waits for its client counts after a moment: for the client, or for its address while
// it is not known. The one that may not be held is reset, as one that is cut.
func TestUnreadResponses(t *testing.T) {
	w := newWorld(t, func(x *exchange.Exchange) {
		if x.Target == "/known" {
			x.Conn.KnownAs(account.Source{Name: "ann"})
		}
		x.Response.Body = exchange.BodySlices{[]byte("body")}
	})
	w.server.Ledger = account.New(account.Limits{Each: 2 * heldByAnswer})
	for path, payer := range map[string]account.Source{"/known": {Name: "ann"}, "/": {Name: "127.0.0.1", Stranger: true}} {
		p := w.dial(0)
		reset := func() {
			t.Helper()
			if f := await[*wire.RSTStreamFrame](p); f.ErrCode != wire.ErrCodeEnhanceYourCalm {
				t.Errorf("reset with %s", f.ErrCode)
			}
		}
		for _, id := range []uint32{1, 3, 5} {
			p.get(id, path)
		}
		reset() // one of three, when the others count
		if got := w.server.Ledger.Largest(2); len(got) != 1 || got[0].Source != payer || got[0].Held[account.Answers] != 2*heldByAnswer {
			t.Errorf("%s: %+v", path, got)
		}
		if freed := w.server.Ledger.Relieve(1, account.Answers); freed != 2*heldByAnswer {
			t.Errorf("%s: %d bytes are cut", path, freed)
		}
		reset()
		reset()
		p.ping()
	}
}

// A body takes no more memory than is counted, in whatever pieces it comes, and is read as it came.
func TestBodiesTakeWhatIsCounted(t *testing.T) {
	for _, frame := range []int{1, crumb, 700, 1023, maxFrame - 100, maxFrame} {
		b, taken, frames := &body{}, 0, (65_500+frame-1)/frame
		for i := range frames {
			b.keep(bytes.Repeat([]byte{byte(i)}, frame))
		}
		b.keep(nil)
		for _, piece := range b.data {
			taken += cap(piece)
		}
		if b.unread != frames*frame || taken > b.unread*9/8+leastKept {
			t.Errorf("frames of %d bytes: %d of %d bytes take %d", frame, b.unread, frames*frame, taken)
		}
		for i, p := 0, make([]byte, 1000); len(b.data) > 0; {
			n, _ := b.data.Read(p)
			for _, got := range p[:n] {
				if got != byte(i/frame) {
					t.Fatalf("frames of %d bytes: byte %d is %d", frame, i, got)
				}
				i++
			}
		}
	}
}
