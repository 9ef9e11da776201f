package seed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

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
	synctest.Test(t, func(t *testing.T) {
		certFile, _, err := downstream.SelfSigned(t.TempDir())
		if err != nil {
			t.Fatal(err)
		}
		const silent, closed = "127.0.0.1:1", "127.0.0.1:2"
		s, _ := siblingsOf(t, &Options{SeedFrom: []string{silent, closed}}, 200, `{"metadata":{"uid":"u"}}`)
		s.config, s.certFile = &rest.Config{Dial: func(_ context.Context, _, address string) (net.Conn, error) {
			if address == closed {
				return nil, errors.New("refused")
			}
			conn, other := net.Pipe()
			go io.Copy(io.Discard, other) // says nothing
			return conn, nil
		}}, certFile
		ask := func() {
			search := s.Search(t.Context(), upstream.Build{})
			for search.More() {
				resp, err := search.Ask(t.Context(), "/api/v1/pods", "", "application/json")
				var failure *Failure
				if !errors.As(err, &failure) || failure.Reason != NoSibling {
					t.Errorf("got %v, %v", resp, err)
				}
			}
		}
		began := time.Now()
		if ask(); time.Since(began) != dialTimeout {
			t.Errorf("took %s", time.Since(began))
		}
		if all, _ := s.addresses(t.Context()); len(all) != 1 || all[0].addr != closed {
			t.Errorf("%v would be asked, want %s", all, closed)
		}
		time.Sleep(silentFor)
		if all, _ := s.addresses(t.Context()); len(all) != 2 {
			t.Errorf("%v would be asked, want both", all)
		}
	})
}
