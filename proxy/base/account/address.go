package account

import (
	"net"
	"net/netip"
)

// AddressOf returns a client's address, as clients are told apart by it; the zero Prefix if it is not
// known. Of an IPv6 address it is the /64 network, because one host may have all of its addresses.
func AddressOf(remote net.Addr) netip.Prefix {
	tcp, ok := remote.(*net.TCPAddr)
	if !ok {
		return netip.Prefix{}
	}
	address, ok := netip.AddrFromSlice(tcp.IP)
	if !ok {
		return netip.Prefix{}
	}
	bits := 64
	if address = address.Unmap(); address.Is4() {
		bits = 32
	}
	network, _ := address.Prefix(bits) // never more bits than the address has
	return network
}

// StrangerAt returns the party that pays for clients of an address that are not known.
func StrangerAt(address netip.Prefix) Source {
	return Source{Name: address.Addr().String(), Stranger: true}
}
