package seed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/watchfan/watchfan/proxy/upstream"
)

// Each failure has a reason, the first of each reason is logged with what to do, and each is counted.
func TestFailures(t *testing.T) {
	s, _ := siblingsOf(t, &Options{}, 200, "")
	var text strings.Builder
	log := slog.New(slog.NewTextHandler(&text, nil))
	for reason := range hints {
		before := failuresByReason[reason].Get()
		for range 3 {
			s.Failed(log, fmt.Errorf("list: %w", &Failure{reason, errors.New("why")}))
		}
		if n := failuresByReason[reason].Get() - before; n != 3 {
			t.Errorf("%s: %d counted", reason, n)
		}
		if n := strings.Count(text.String(), "reason="+string(reason)+" "); n != 1 {
			t.Errorf("%s: logged %d times", reason, n)
		}
	}
	if n := strings.Count(text.String(), "todo="); n != len(hints) {
		t.Errorf("%d of %d lines say what to do", n, len(hints))
	}
}

// The failure that says most is kept: one that is usual gives way.
func TestWorse(t *testing.T) {
	f := func(a, b, want Reason) {
		t.Helper()
		var got *Failure
		if err := worse(&Failure{a, nil}, &Failure{b, nil}); !errors.As(err, &got) || got.Reason != want {
			t.Errorf("%s, %s: got %v", a, b, err)
		}
	}
	f(NoSibling, Unfilled, Unfilled)
	f(Unfilled, Refused, Refused)
	f(Refused, Unfilled, Refused)
	f(OtherCluster, NoSibling, OtherCluster)
}

// Files that cannot be used are a reason too. Names without an address, and none at all, are no
// sibling. At most mostAsked addresses are asked.
func TestOpen(t *testing.T) {
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
		var got *Failure
		resp, _, err := s.Open(t.Context(), "/api/v1/pods", "", "application/json", upstream.Build{})
		if err == nil {
			resp.Body.Close()
		}
		if !errors.As(err, &got) || got.Reason != want {
			t.Errorf("%+v: got %v, want %s", o, err, want)
		}
	}
	f(Options{}, "", NoSibling)
	f(Options{SeedFrom: []string{"no-such-host.invalid"}}, "", NoSibling)
	f(Options{SeedFrom: []string{"127.0.0.1:1"}}, missing, Unusable)
	f(Options{SeedFrom: []string{"127.0.0.1:1"}}, empty, Unusable)
	f(Options{SeedFrom: []string{"127.0.0.1:1"}, SeedCertificateAuthority: missing}, "", Unusable)
	f(Options{SeedFrom: []string{"127.0.0.1:1"}, SeedCertificateAuthority: empty}, "", Unusable)

	s, _ := siblingsOf(t, &Options{}, 200, namespace)
	for i := range 3 * mostAsked {
		s.opts.SeedFrom = append(s.opts.SeedFrom, fmt.Sprintf("127.0.0.%d", i+1))
	}
	var failed error
	all := s.addresses(context.Background(), &failed)
	if len(all) != mostAsked || failed != nil || !strings.HasSuffix(all[0].addr, ":8443") {
		t.Errorf("got %d addresses, %v", len(all), failed)
	}
}
