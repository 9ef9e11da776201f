package admin

import (
	"net"
	"net/http"
	"net/netip"
	"sync"
	"time"

	"github.com/watchfan/watchfan/proxy/base/account"
)

const (
	maxConnections = 256
	// maxOfAddress bounds the connections of one address. A Prometheus, a kubelet's probes and a
	// person with the status page open take a few.
	maxOfAddress = 32
)

// connections are the open connections of the port. Anybody who reaches the port may open some, and
// the probes of a kubelet must always get in. So a new connection is never refused. Beyond a bound,
// another one is closed instead: of the address that has most, the one that has done nothing for the
// longest time; an idle one before one that is answered. A probe takes milliseconds, so it is gone
// before its turn comes. The methods may be called from any goroutine.
type connections struct {
	mu   sync.Mutex
	open map[net.Conn]*visit
}

// visit is one connection. connections.mu guards it.
type visit struct {
	from   netip.Prefix
	active bool      // a request is read or answered
	since  time.Time // when that began, or when the connection was opened
}

// note follows the states of a connection, as http.Server.ConnState. A new connection may close
// another.
func (cs *connections) note(c net.Conn, state http.ConnState) {
	if closing := cs.change(c, state); closing != nil {
		_ = closing.Close() // net/http then reports it as closed
	}
}

func (cs *connections) change(c net.Conn, state http.ConnState) (closing net.Conn) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	v := cs.open[c]
	switch {
	case state == http.StateNew:
		if cs.open == nil {
			cs.open = make(map[net.Conn]*visit)
		}
		v = &visit{from: account.AddressOf(c.RemoteAddr()), since: time.Now()}
		closing = cs.oneTooManyLocked(v.from)
		cs.open[c] = v
	case v == nil:
	case state == http.StateClosed || state == http.StateHijacked:
		delete(cs.open, c)
	default:
		v.active, v.since = state == http.StateActive, time.Now()
	}
	return closing
}

// oneTooManyLocked returns the connection that makes way for a new one, nil if there is room. It is
// no longer counted.
func (cs *connections) oneTooManyLocked(comer netip.Prefix) (last net.Conn) {
	addresses, most := make(map[netip.Prefix]int), 0
	for _, v := range cs.open {
		addresses[v.from]++
		most = max(most, addresses[v.from])
	}
	own := addresses[comer] >= maxOfAddress
	if !own && len(cs.open) < maxConnections {
		return nil
	}
	for c, v := range cs.open {
		makesWay := addresses[v.from] == most
		if own {
			makesWay = v.from == comer
		}
		if makesWay && (last == nil || v.before(cs.open[last])) {
			last = c
		}
	}
	delete(cs.open, last)
	return last
}

// before reports whether v makes way before w.
func (v *visit) before(w *visit) bool {
	if v.active != w.active {
		return w.active
	}
	return v.since.Before(w.since)
}
