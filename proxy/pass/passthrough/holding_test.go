package passthrough

import (
	"context"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/suites/proxytest"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// breakable is a connection that knows whether it has been broken.
type breakable struct {
	proxytest.Conn
	broken atomic.Bool
}

func (c *breakable) Break() { c.broken.Store(true) }

var known, other = account.Source{Name: "known"}, account.Source{Name: "other"}

// inBubble calls f with a Forwarder whose sources may hold so much.
func inBubble(t *testing.T, limits account.Limits, f func(t *testing.T, p *Forwarder)) {
	synctest.Test(t, func(t *testing.T) {
		f(t, &Forwarder{Config: Config{Ledger: account.New(limits), Metrics: NewMetrics(metrics.NewSet())}, requests: t.Context(), streams: t.Context()})
	})
}

func heldFor(t *testing.T, p *Forwarder, source account.Source, lasts bool) (*holding, *breakable) {
	t.Helper()
	client := new(breakable)
	h, st := p.hold(&exchange.Exchange{Conn: client, Received: time.Now()}, source, lasts, lasts)
	if st != nil {
		t.Fatalf("%+v", st)
	}
	return h, client
}

// A source that holds its share waits for room, and is refused in kube-apiserver's form if there is
// none. Another source does not wait.
func TestHoldingWaits(t *testing.T) {
	inBubble(t, account.Limits{Each: heldByLasting}, func(t *testing.T, p *Forwarder) {
		first, _ := heldFor(t, p, known, true)
		x := &exchange.Exchange{Conn: new(breakable), Received: time.Now()}
		began := time.Now()
		if _, st := p.hold(x, known, true, true); st == nil || st.Code != http.StatusTooManyRequests {
			t.Errorf("got %+v, want 429", st)
		}
		if waited := time.Since(began); waited != roomWait {
			t.Errorf("it waited for %s, want %s", waited, roomWait)
		}
		second, _ := heldFor(t, p, other, true)
		defer second.close()
		time.AfterFunc(time.Second, first.close)
		third, _ := heldFor(t, p, known, true)
		third.close()
	})
}

// A fall-back with the chart's 512 MiB has room for 1,365 watches of one source, and for 2,730 in all, beyond which those
// of the largest end: deploy/FALLBACK.md says so.
func TestHoldingWatches(t *testing.T) {
	inBubble(t, account.LimitsOf(512<<20), func(t *testing.T, p *Forwarder) {
		most := func(source account.Source) (held []*holding) {
			for {
				h, st := p.hold(&exchange.Exchange{Conn: new(breakable), Received: time.Now()}, source, true, true)
				if st != nil {
					return held
				}
				held = append(held, h)
			}
		}
		first, second := most(known), most(other)
		if len(first) != 1365 || len(second) != 1365 {
			t.Errorf("%d and %d watches of two sources", len(first), len(second))
		}
		last, _ := heldFor(t, p, account.Source{Name: "a third"}, true)
		if (first[0].ctx.Err() != nil) == (second[0].ctx.Err() != nil) {
			t.Error("one more than all may hold does not end those of one source")
		}
		for _, h := range slices.Concat(first, second, []*holding{last}) {
			h.close()
		}
	})
}

// A long head counts for as long as its request may last.
func TestHoldingHead(t *testing.T) {
	inBubble(t, account.Limits{}, func(t *testing.T, p *Forwarder) {
		const long = 100 << 10
		x := &exchange.Exchange{Conn: new(breakable), Received: time.Now(), Protocol: exchange.HTTP11,
			Header: exchange.Header{{Name: "X", Value: strings.Repeat("x", long)}}}
		h, _ := p.hold(x, known, true, true)
		for _, code := range []int{http.StatusOK, http.StatusSwitchingProtocols} {
			h.began(&http.Response{StatusCode: code})
			if got := p.Ledger.Totals().Held[account.Answers]; got < long {
				t.Errorf("%d: %d bytes count", code, got)
			}
		}
		h.close()
	})
}

// A few requests of a source wait, and the next is refused at once.
func TestRoomWaits(t *testing.T) {
	inBubble(t, account.Limits{Each: heldByLasting}, func(t *testing.T, p *Forwarder) {
		first, _ := heldFor(t, p, known, true)
		x := &exchange.Exchange{Conn: new(breakable), Received: time.Now()}
		refused := make(chan time.Duration, mostRoomWaits+1)
		began := time.Now()
		for range cap(refused) {
			go func() {
				_, _ = p.hold(x, known, true, true)
				refused <- time.Since(began)
			}()
		}
		if waited := <-refused; waited != 0 {
			t.Errorf("the last waited for %s", waited)
		}
		for range mostRoomWaits {
			if waited := <-refused; waited != roomWait {
				t.Errorf("one waited for %s, want %s", waited, roomWait)
			}
		}
		first.close()
		if len(p.waiting.of) != 0 {
			t.Errorf("%v wait", p.waiting.of)
		}
	})
}

// What a response holds is bounded by its length, and counts until the request's end. The one that
// may not be held is not begun.
func TestHoldingAnswer(t *testing.T) {
	inBubble(t, account.Limits{Each: 2 * held(-1)}, func(t *testing.T, p *Forwarder) {
		answer := func(length int64) (*holding, bool) {
			h, _ := heldFor(t, p, known, false)
			return h, h.began(&http.Response{ContentLength: length, Body: io.NopCloser(strings.NewReader(""))})
		}
		upgraded, _ := heldFor(t, p, known, true)
		if got := p.Ledger.Totals().Held[account.Answers]; got != heldByLasting {
			t.Errorf("%d bytes for a request that may last", got)
		}
		upgraded.began(&http.Response{StatusCode: http.StatusSwitchingProtocols, ContentLength: -1})
		if got := p.Ledger.Totals().Held[account.Answers]; got != heldByTunnel {
			t.Errorf("%d bytes for an upgraded request", got)
		}
		upgraded.close()
		short, ok := answer(100)
		if got := p.Ledger.Totals().Held[account.Answers]; !ok || got != heldByRequest+100+4<<10 {
			t.Errorf("%d bytes for a response of 100", got)
		}
		long, ok := answer(-1)
		if got := p.Ledger.Totals().Held[account.Answers]; !ok || got != 2*heldByRequest+100+4<<10+held(-1) {
			t.Errorf("%d bytes with a response of unknown length", got)
		}
		more, ok := answer(1 << 30)
		if ok {
			t.Error("a response beyond the bound has begun")
		}
		for _, h := range []*holding{short, long, more} {
			h.close()
		}
		if got := p.Ledger.Totals(); got.Open != 0 {
			t.Errorf("%+v is left", got)
		}
	})
}

// An ordinary request ends in time: with 504 before its response, and then by breaking it off. One
// that lasts does not. A request that is cut ends too.
func TestHoldingEnds(t *testing.T) {
	inBubble(t, account.Limits{}, func(t *testing.T, p *Forwarder) {
		early, earlyClient := heldFor(t, p, known, false)
		late, lateClient := heldFor(t, p, known, false)
		late.began(&http.Response{Body: http.NoBody})
		lasting, lastingClient := heldFor(t, p, known, true)
		lasting.began(&http.Response{Body: http.NoBody})
		time.Sleep(requestTime + answerGrace - 1)
		if early.ctx.Err() != nil || late.ctx.Err() != nil {
			t.Fatal("ended before its time")
		}
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		if st := early.failure(http.MethodPost, nil); early.ctx.Err() == nil || earlyClient.broken.Load() || st == nil || st.Code != http.StatusGatewayTimeout {
			t.Errorf("before the response: %+v", st)
		}
		if late.ctx.Err() == nil || !lateClient.broken.Load() {
			t.Error("a response goes on beyond its time")
		}
		if lasting.ctx.Err() != nil || lastingClient.broken.Load() {
			t.Fatal("a response that may last has ended")
		}
		p.Ledger.Relieve(1, account.Passing()...)
		if lasting.ctx.Err() == nil || !lastingClient.broken.Load() {
			t.Error("a response that is cut goes on")
		}
		if st := lasting.failure(http.MethodPost, errCut); st == nil || !strings.Contains(st.Message, "may or may not") {
			t.Errorf("cut, and net/http says so: %+v", st)
		}
		for _, h := range []*holding{early, late, lasting} {
			h.close()
		}
		done, doneClient := heldFor(t, p, known, false)
		done.began(&http.Response{Body: http.NoBody})
		done.close()
		time.Sleep(2 * requestTime)
		if doneClient.broken.Load() {
			t.Error("the connection of a request that has ended is broken")
		}
	})
}

// A response that may last counts only while the client is being written to.
func TestHeldBody(t *testing.T) {
	inBubble(t, account.Limits{Each: heldByLasting + upstream.Window + 10}, func(t *testing.T, p *Forwarder) {
		h, client := heldFor(t, p, known, true)
		defer h.close()
		from, to := io.Pipe()
		body := &heldBody{from, h}
		go func() {
			_, _ = io.WriteString(to, "event")
			_, _ = io.WriteString(to, "an event that is too long")
		}()
		if n, err := body.Read(make([]byte, 100)); n != 5 || err != nil {
			t.Fatal(n, err)
		}
		if got := p.Ledger.Totals().Held[account.Answers]; got != heldByLasting+upstream.Window+5 {
			t.Errorf("%d bytes while the client is written to", got)
		}
		h.began(&http.Response{Body: body})
		if n, err := body.Read(make([]byte, 100)); n != 0 || err != context.Canceled || !client.broken.Load() {
			t.Errorf("beyond the bound: %d bytes, %v, broken %v", n, err, client.broken.Load())
		}
	})
}
