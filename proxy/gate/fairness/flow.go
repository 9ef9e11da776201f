package fairness

import (
	"hash/maphash"
	"net"
	"net/netip"
)

// Flow tells apart those who share a [Queue]. It is comparable. The zero Flow is the proxy itself.
type Flow struct {
	kind string
	name string // of a user, or an address
	sum  uint64 // of a token, or the port of a connection
}

var flowSeed = maphash.MakeSeed()

// User returns the Flow of a user that is known by name.
func User(name string) Flow { return Flow{kind: "user", name: name} }

// Token returns the Flow of all who bring a token.
func Token(token string) Flow { return Flow{kind: "token", sum: maphash.String(flowSeed, token)} }

// Address returns the Flow of all clients at an address.
func Address(from netip.Prefix) Flow { return Flow{kind: "address", name: from.String()} }

// Connection returns the Flow of one connection from this host.
func Connection(from net.Addr) Flow {
	f := Flow{kind: "connection"}
	if tcp, ok := from.(*net.TCPAddr); ok {
		f.sum = uint64(tcp.Port)
	}
	return f
}
