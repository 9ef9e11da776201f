package downstream

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest/steady"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// countedTurn is a turn that notes whether it is held, and how often it was.
type countedTurn struct {
	held  atomic.Bool
	turns atomic.Int64
}

func (c *countedTurn) Resume() error {
	c.turns.Add(1)
	c.held.Store(true)
	return nil
}

func (c *countedTurn) Give() { c.held.Store(false) }

// awaitBlocked waits until a write has had a turn, and is without one for many looks.
func (c *countedTurn) awaitBlocked(t *testing.T) {
	looks, turns := 0, int64(0)
	steady.Until(t, "write that waits without a turn", func() error {
		if now := c.turns.Load(); c.held.Load() || now == 0 || now != turns {
			looks, turns = 0, now
			return errors.New("it is at work")
		}
		if looks++; looks < 10 {
			return errors.New("it may be between two turns")
		}
		return nil
	})
}

// While a client does not read a long body over TLS, nobody waits for its turn. In the end it reads
// the body.
func TestSealerHoldsNoTurn(t *testing.T) {
	_, served, client, _ := sinkPair(t, sinkWay{secure: true})
	var body exchange.BodySlices
	rng := steady.Rand(t)
	for range 300 {
		body = append(body, bytes.Repeat([]byte{byte(rng.Int())}, 10_000+rng.IntN(1000)))
	}
	turn := new(countedTurn)
	written := make(chan error, 1)
	go func() {
		n, err := WriteSlices(served, slices.Clone(body), turn)
		if err == nil && int(n) != body.Size() {
			err = fmt.Errorf("%d bytes are written of %d", n, body.Size())
		}
		written <- err
	}()
	turn.awaitBlocked(t)
	select {
	case err := <-written:
		t.Fatalf("3 MB are written to a client that has not read: %v", err)
	default:
	}
	got := make([]byte, body.Size())
	if _, err := io.ReadFull(client.(*tls.Conn), got); err != nil {
		t.Fatal(err)
	}
	if err := <-written; err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, slices.Concat(body...)) {
		t.Error("the client has read something else")
	}
	if n, least := turn.turns.Load(), int64(body.Size()/SealedAtOnce); n < least || turn.held.Load() {
		t.Errorf("%d turns, want %d or more and none now", n, least)
	}
}

// A long body without a turn is written too.
func TestLongBodyWithoutTurn(t *testing.T) {
	_, served, client, _ := sinkPair(t, sinkWay{secure: true})
	body := bytes.Repeat([]byte("x"), SealedAtOnce+1)
	written := make(chan error, 1)
	go func() {
		_, err := WriteSlices(served, exchange.BodySlices{body}, nil)
		written <- err
	}()
	got := make([]byte, len(body))
	if _, err := io.ReadFull(client.(*tls.Conn), got); err != nil || !bytes.Equal(got, body) {
		t.Errorf("the client has read something else, and then %v", err)
	}
	if err := steady.Receive(t, "end of the write", written); err != nil {
		t.Error(err)
	}
}
