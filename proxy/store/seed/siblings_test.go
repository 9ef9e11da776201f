package seed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/wire/downstream"
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

// A sibling that does not answer costs the time of a dial, and one that refuses connections, as a pod that starts,
// none.
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
		began := time.Now()
		search := s.Search(t.Context(), upstream.Build{})
		for search.More() {
			resp, err := search.Ask(t.Context(), "/api/v1/pods", "", "application/json")
			var failure *Failure
			if !errors.As(err, &failure) || failure.Reason != NoSibling {
				t.Errorf("got %v, %v", resp, err)
			}
		}
		if took := time.Since(began); took != dialTimeout {
			t.Errorf("took %s", took)
		}
	})
}

// A failure that says most is kept: one that is usual gives way. This replica is no failure.
func TestRefuse(t *testing.T) {
	f := func(want Reason, errs ...error) {
		t.Helper()
		s := Search{failure: Fail(NoSibling, "none")}
		for _, err := range errs {
			s.Refuse(err)
		}
		if got := s.failure.Reason; got != want {
			t.Errorf("%v: got %s", errs, got)
		}
	}
	f(NoSibling)
	f(NoSibling, &Failure{itself, nil})
	f(Unfilled, &Failure{Unfilled, nil}, &Failure{itself, nil})
	f(Refused, &Failure{Unfilled, nil}, &Failure{Refused, nil}, &Failure{Unfilled, nil}, &Failure{Slow, nil})
	f(Broken, &Failure{NoSibling, nil}, errors.New("EOF"), &Failure{Unfilled, nil})
}

// Files that cannot be used are a reason too. Names without an address, and none at all, are no
// sibling. The first failure of each reason is logged with what to do, and each is counted.
func TestSearch(t *testing.T) {
	const namespace = `{"metadata":{"uid":"u"}}`
	missing := filepath.Join(t.TempDir(), "none")
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	f := func(o Options, certFile string, want Reason) {
		t.Helper()
		s, _ := siblingsOf(t, &o, 200, namespace)
		s.config, s.certFile = &rest.Config{}, certFile
		search := s.Search(t.Context(), upstream.Build{})
		for search.More() {
			resp, err := search.Ask(t.Context(), "/api/v1/pods", "", "application/json")
			if err == nil {
				resp.Body.Close()
			}
			search.Refuse(err)
		}
		var text strings.Builder
		for range 3 {
			search.Failed(slog.New(slog.NewTextHandler(&text, nil)))
		}
		if n := strings.Count(text.String(), "reason="+string(want)+" "); n != 1 || !strings.Contains(text.String(), "todo=") {
			t.Errorf("%+v: got %s, want %s once", o, &text, want)
		}
		if n := s.failures.counts[want].Get(); n != 3 {
			t.Errorf("%+v: %d counted", o, n)
		}
	}
	f(Options{}, "", NoSibling)
	f(Options{SeedFrom: []string{"no-such-host.invalid"}}, "", NoSibling)
	f(Options{SeedFrom: []string{"127.0.0.1:1"}}, missing, Unusable)
	f(Options{SeedFrom: []string{"127.0.0.1:1"}}, empty, Unusable)
	f(Options{SeedFrom: []string{"127.0.0.1:1"}, SeedCertificateAuthority: missing}, "", Unusable)
	f(Options{SeedFrom: []string{"127.0.0.1:1"}, SeedCertificateAuthority: empty}, "", Unusable)

	s, _ := siblingsOf(t, &Options{SeedFrom: []string{"127.0.0.1"}}, 500, "")
	if search := s.Search(t.Context(), upstream.Build{}); search.More() || search.failure.Reason != Unidentified {
		t.Errorf("a cluster without a name: %v", search.failure)
	}
	late := &Search{left: make([]address, 1), end: time.Now()}
	if late.More() {
		t.Error("another sibling is asked after the end")
	}
}
