package seed

import (
	"fmt"
	"strings"
	"testing"
)

// The addresses of all names are asked in random order, mostAsked at most.
func TestAddresses(t *testing.T) {
	s, _ := siblingsOf(t, &Options{SeedFrom: []string{"no-such-host.invalid"}}, 200, "")
	if all, err := s.addresses(t.Context()); len(all) != 0 || err == nil {
		t.Errorf("got %v, %v", all, err)
	}
	s, _ = siblingsOf(t, &Options{}, 200, "")
	for i := range 3 * mostAsked {
		s.opts.SeedFrom = append(s.opts.SeedFrom, fmt.Sprintf("127.0.0.%d", i+1))
	}
	all, err := s.addresses(t.Context())
	if len(all) != mostAsked || err != nil {
		t.Errorf("got %d addresses, %v", len(all), err)
	}
	other, _ := s.addresses(t.Context())
	if fmt.Sprint(all) == fmt.Sprint(other) {
		t.Error("the order is not random") // once in 10^26 runs
	}
	for _, a := range all {
		if a.addr != a.host+":8443" || !strings.HasPrefix(a.host, "127.0.0.") {
			t.Errorf("got %+v", a)
		}
	}
}
