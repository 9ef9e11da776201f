package account

import (
	"net"
	"testing"
)

// An IPv4 address is itself, however it is written, and an IPv6 address its network.
func TestAddressOf(t *testing.T) {
	for from, want := range map[string]string{
		"10.1.2.3:5":              "10.1.2.3/32",
		"[::ffff:10.1.2.3]:5":     "10.1.2.3/32",
		"[fd00:1:2:3:4:5:6:7]:5":  "fd00:1:2:3::/64",
		"[fe80::1:2:3:4%lo]:5":    "fe80::/64",
		"[fd00:1:2:3:ffff::1]:10": "fd00:1:2:3::/64",
	} {
		a, err := net.ResolveTCPAddr("tcp", from)
		if err != nil {
			t.Fatal(err)
		}
		if got := AddressOf(a); got.String() != want {
			t.Errorf("%s: %s, want %s", from, got, want)
		}
	}
	if got := AddressOf(&net.UnixAddr{}); got.IsValid() {
		t.Errorf("no address: %s", got)
	}
}
