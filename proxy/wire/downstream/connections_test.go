package downstream

import (
	"bytes"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/base/account"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// fill writes to a socket until it takes nothing more.
func fill(t *testing.T, c *net.TCPConn) {
	t.Helper()
	for size := 64 << 10; size > 0; size /= 16 {
		for n := 1; n > 0; {
			_ = c.SetWriteDeadline(time.Now().Add(50 * time.Millisecond)) //testlint:allow deadline no machine is too slow for silence
			var err error
			if n, err = c.Write(make([]byte, size)); err != nil && !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Fatal(err)
			}
		}
	}
	_ = c.SetWriteDeadline(time.Time{})
}

// A client that does not read does not keep the proxy from closing its connection and those of
// others, whatever the connection was about to write.
func TestCloseUnread(t *testing.T) {
	full := func(t *testing.T, served *tls.Conn, _ *tlsRecords) { fill(t, TCPConn(served)) }
	for name, c := range map[string]struct {
		prepare func(t *testing.T, served *tls.Conn, records *tlsRecords)
		close   func(cs *Connections, c net.Conn)
	}{
		"between two requests":                {full, func(cs *Connections, c net.Conn) { cs.Resting(c); cs.BeginClosing() }},
		"a request that ends in the shutdown": {full, func(cs *Connections, c net.Conn) { cs.Serving(c); cs.BeginClosing(); cs.Resting(c) }},
		"no request":                          {full, func(cs *Connections, _ net.Conn) { cs.CloseSilent() }},
		"within a long body": {
			func(t *testing.T, served *tls.Conn, _ *tlsRecords) {
				written, turn := make(chan error, 1), new(countedTurn)
				go func() {
					body := exchange.BodySlices{bytes.Repeat([]byte("x"), 8<<20)}
					_, err := WriteSlices(served, body, turn)
					written <- err
				}()
				t.Cleanup(func() {
					if err := <-written; err == nil {
						t.Error("8 MB are written to a client that has not read")
					}
				})
				turn.awaitBlocked(t)
			},
			func(cs *Connections, _ net.Conn) { cs.CloseAll() },
		},
		"an answer of TLS": {
			func(t *testing.T, served *tls.Conn, records *tlsRecords) {
				fill(t, TCPConn(served))
				read := make(chan error, 1)
				go func() { _, err := served.Read(make([]byte, 1)); read <- err }()
				t.Cleanup(func() {
					if err := <-read; err == nil {
						t.Error("the client has sent nothing, and something is read")
					}
				})
				if err := records.askForKey(); err != nil {
					t.Fatal(err)
				}
				time.Sleep(100 * time.Millisecond) //testlint:allow timer the answer waits by then, which is not asserted
			},
			func(cs *Connections, c net.Conn) { cs.Resting(c); cs.BeginClosing() },
		},
	} {
		t.Run(name, func(t *testing.T) {
			var keys bytes.Buffer
			_, conn, client, tap := sinkPair(t, sinkWay{secure: true, polled: true, keys: &keys})
			records := recordsOf(t, conn, tap, keys.String())
			cs := NewConnections(0, account.New(account.Limits{}))
			cs.Opened(conn)
			c.prepare(t, conn.(*tls.Conn), records)
			closed := make(chan struct{})
			go func() { defer close(closed); c.close(cs, conn) }()
			select {
			case <-closed:
			case <-time.After(2 * time.Second):
				t.Error("the proxy waits for the client")
				client.Close()
				<-closed
			}
		})
	}
}

// A client that reads is told that its connection ends.
func TestCloseNotifies(t *testing.T) {
	_, conn, client, _ := sinkPair(t, sinkWay{secure: true, polled: true})
	cs := NewConnections(0, account.New(account.Limits{}))
	cs.Opened(conn)
	cs.Resting(conn)
	cs.BeginClosing()
	if _, err := client.Read(make([]byte, 1)); err != io.EOF {
		t.Errorf("got %v, want EOF behind a close_notify", err)
	}
}

// One address leaves a quarter of the connections to others, and others may have it.
func TestShareOfConnections(t *testing.T) {
	cs := NewConnections(0, account.New(account.Limits{}))
	l := LimitedListener{Most: 40, Open: cs.Count, From: cs.From, Spent: func() bool { return false }}
	arrive := func(from string) (net.Conn, bool) {
		a, err := net.ResolveTCPAddr("tcp", from)
		if err != nil {
			t.Fatal(err)
		}
		c := &addressed{from: a}
		if !l.admits(c) {
			return nil, false
		}
		cs.Opened(c)
		return c, true
	}
	var first net.Conn
	for i := range 30 {
		c, ok := arrive("10.0.0.1:5")
		if !ok {
			t.Fatalf("connection %d is refused", i)
		}
		first = c
	}
	if _, ok := arrive("10.0.0.1:5"); ok {
		t.Error("one address has more than three quarters")
	}
	for i := range 10 {
		if _, ok := arrive(fmt.Sprintf("10.0.1.%d:5", i)); !ok {
			t.Fatal("another address is refused")
		}
	}
	if _, ok := arrive("10.0.2.1:5"); ok {
		t.Error("there are more connections than the limit")
	}
	cs.Closed(first)
	if _, ok := arrive("10.0.2.1:5"); !ok {
		t.Error("no room after a connection has ended")
	}
	if n := cs.From(account.AddressOf(first.RemoteAddr())); n != 29 {
		t.Errorf("%d connections of the first address", n)
	}
}

// addressed is a connection that only has an address.
type addressed struct {
	net.Conn
	from net.Addr
}

func (c *addressed) RemoteAddr() net.Addr { return c.from }

// A connection counts while it carries no request: for its address until its client is known, and
// then for that client. When memory is short, those of the source with most are closed.
func TestConnectionsCount(t *testing.T) {
	ledger := account.New(account.Limits{})
	cs := NewConnections(0, ledger)
	open := func(from string) (*closing, *Conn) {
		c := openFrom(t, cs, from)
		return c, cs.open[c]
	}
	want := func(when, want string) {
		t.Helper()
		got := ""
		for _, h := range ledger.Largest(10) {
			if n := h.Held[account.Connections]; n > 0 {
				got += fmt.Sprint(" ", h.Source.Name, " ", h.Source.Stranger, " ", n/atRest)
			}
		}
		if got != want {
			t.Errorf("%s:%s, want%s", when, got, want)
		}
	}
	_, one := open("10.0.0.1:1")
	watching, _ := open("10.0.0.1:2")
	silent, _ := open("10.0.0.1:3")
	other, _ := open("10.0.0.2:1")
	cs.Serving(watching)
	want("one carries a request", " 10.0.0.1 true 2 10.0.0.2 true 1")
	one.KnownAs(account.Source{Name: "ann"})
	cs.Resting(watching)
	want("one has a known client", " 10.0.0.1 true 2 10.0.0.2 true 1 ann false 1")
	if one.Payer() != (account.Source{Name: "ann"}) {
		t.Errorf("the client pays as %v", one.Payer())
	}
	cs.Serving(watching)
	idle, _ := open("10.0.0.1:4")
	if freed := ledger.Relieve(1, account.Passing()...); freed != 2*atRest {
		t.Errorf("%d bytes are freed", freed)
	}
	if !silent.closed || !idle.closed || watching.closed || other.closed {
		t.Error("not the connections without requests of the address with most are closed")
	}
	for c := range cs.open {
		cs.Closed(c)
	}
	want("all are closed", "")
	if n := ledger.Totals().Open; n != 0 {
		t.Errorf("%d entries are left", n)
	}
}

// A stranger that has three quarters of the bound gets no more connections, new or behind a request. Other
// strangers do, and so does the same address once its client is known.
func TestStrangersConnections(t *testing.T) {
	cs := NewConnections(0, account.New(account.Limits{Connections: 4 * atRest}))
	open := func(from string) *closing { return openFrom(t, cs, from) }
	one, two, three, four, other := open("10.0.0.1:1"), open("10.0.0.1:2"), open("10.0.0.1:3"), open("10.0.0.1:4"), open("10.0.0.2:1")
	if one.closed || two.closed || three.closed || !four.closed || other.closed {
		t.Errorf("%t %t %t %t and %t are closed, want the fourth alone", one.closed, two.closed, three.closed, four.closed, other.closed)
	}
	cs.Closed(four)
	cs.Serving(one)
	if open("10.0.0.1:5").closed {
		t.Error("a connection with a request counts")
	}
	if cs.Resting(one); !one.closed {
		t.Error("a connection rests beyond the bound")
	}
	cs.Serving(two).KnownAs(account.Source{Name: "ann"})
	cs.Resting(two)
	if six := open("10.0.0.1:6"); two.closed || six.closed {
		t.Error("the connection of a known client counts for strangers")
	}
}

// openFrom opens a connection from an address.
func openFrom(t *testing.T, cs *Connections, from string) *closing {
	t.Helper()
	a, err := net.ResolveTCPAddr("tcp", from)
	if err != nil {
		t.Fatal(err)
	}
	c := &closing{addressed: addressed{from: a}}
	cs.Opened(c)
	return c
}

// closing is a connection that notes that it is closed.
type closing struct {
	addressed
	closed bool
}

func (c *closing) Close() error {
	c.closed = true
	return nil
}
