package admin

import (
	"fmt"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// testConn is a connection that only has an address.
type testConn struct {
	net.Conn
	from   string
	closed *[]*testConn
}

func (c *testConn) RemoteAddr() net.Addr {
	a, _ := net.ResolveTCPAddr("tcp", c.from)
	return a
}

func (c *testConn) Close() error {
	*c.closed = append(*c.closed, c)
	return nil
}

// crowd is a set of connections, and those that were closed.
type crowd struct {
	connections
	closed []*testConn
}

func (cr *crowd) arrive(from string) *testConn {
	c := &testConn{from: from, closed: &cr.closed}
	cr.note(c, http.StateNew)
	time.Sleep(time.Second)
	return c
}

// Whoever has most connections, or too many, makes way for a new one: first the one that has done
// nothing for the longest time, and one that is answered last.
func TestConnections(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cr := new(crowd)
		var first []*testConn
		for range maxOfAddress {
			first = append(first, cr.arrive("10.0.0.1:1"))
		}
		if len(cr.closed) > 0 {
			t.Fatal("closed a connection within the bounds")
		}
		cr.note(first[0], http.StateActive)
		cr.note(first[1], http.StateActive)
		cr.note(first[1], http.StateIdle)
		cr.arrive("10.0.0.1:2")
		if len(cr.closed) != 1 || cr.closed[0] != first[2] {
			t.Error("another connection of the address is closed than the one that waits for longest")
		}
		cr.note(first[2], http.StateClosed) // as net/http reports what was closed
		if cr.count() != maxOfAddress {
			t.Errorf("%d connections are counted", cr.count())
		}
	})
}

// Nobody keeps a probe out: neither one address with all connections, nor many with one each.
func TestProbesGetIn(t *testing.T) {
	for name, from := range map[string]func(i int) string{
		"few addresses":  func(i int) string { return fmt.Sprintf("10.0.0.%d:1", i%10) },
		"many addresses": func(i int) string { return fmt.Sprintf("10.1.%d.%d:1", i/200, i%200) },
		"one network":    func(i int) string { return fmt.Sprintf("[fd00::%x]:1", i+1) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cr := new(crowd)
				for i := range 3 * maxConnections {
					cr.arrive(from(i))
					if i%50 == 0 {
						probe := cr.arrive("10.9.9.9:1")
						cr.note(probe, http.StateActive)
						for n := range 20 {
							cr.arrive(from(i + n))
						}
						for _, c := range cr.closed {
							if c == probe {
								t.Fatal("a probe was closed")
							}
						}
						cr.note(probe, http.StateClosed)
					}
				}
				if n := cr.count(); n > maxConnections {
					t.Errorf("%d connections are open", n)
				}
				if name == "one network" && cr.count() > maxOfAddress {
					t.Errorf("one network has %d connections", cr.count())
				}
			})
		})
	}
}

// Clients of this host come from 127.0.0.1 or ::1, and through no proxy.
func TestFromHere(t *testing.T) {
	p := New(Config{Local: func(*http.Request) bool { return true }}, proxytest.Guard())
	for _, c := range []struct {
		from, header string
		want         bool
	}{
		{"127.0.0.1:5", "", true},
		{"[::1]:5", "", true},
		{"[::ffff:127.0.0.1]:5", "", true},
		{"127.0.0.6:5", "", false}, // Istio's inbound connections
		{"10.0.0.1:5", "", false},
		{"127.0.0.1:5", "X-Forwarded-For", false},
		{"127.0.0.1:5", "Via", false},
		{"127.0.0.1:5", "x-envoy-attempt-count", false},
		{"127.0.0.1:5", "l5d-client-id", false},
		{"127.0.0.1:5", "User-Agent", true},
	} {
		r := httptest.NewRequest(http.MethodGet, "/debug/watchers", nil)
		if r.RemoteAddr = c.from; c.header != "" {
			r.Header.Set(c.header, "x")
		}
		if got := p.fromHere(r); got != c.want {
			t.Errorf("%s %s: %t", c.from, c.header, got)
		}
	}
}

// count returns the number of open connections.
func (cs *connections) count() int {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	return len(cs.open)
}
