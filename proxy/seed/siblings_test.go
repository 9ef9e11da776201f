package seed

import (
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/downstream"
	"github.com/watchfan/watchfan/proxy/upstream"
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

// A sibling that takes long and does not answer is not asked again for a while. One that refuses
// connections, as a pod that starts, is asked again.
func TestSilent(t *testing.T) {
	certFile, _, err := downstream.SelfSigned(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0") // takes connections and says nothing
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	silent, closed := ln.Addr().String(), "127.0.0.1:1"
	s, _ := siblingsOf(t, &Options{SeedFrom: []string{silent, closed}}, 200, `{"metadata":{"uid":"u"}}`)
	s.config, s.certFile = &rest.Config{}, certFile
	search := s.Search(t.Context(), upstream.Build{})
	for search.More() {
		resp, err := search.Ask(t.Context(), "/api/v1/pods", "", "application/json")
		var failure *Failure
		if !errors.As(err, &failure) || failure.Reason != NoSibling {
			t.Errorf("got %v, %v", resp, err)
		}
	}
	if all, _ := s.addresses(t.Context()); len(all) != 1 || all[0].addr != closed {
		t.Errorf("%v would be asked, want %s", all, closed)
	}
}
