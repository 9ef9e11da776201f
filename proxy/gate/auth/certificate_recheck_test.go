package auth

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

// certified opens a watch of a user with a certificate. ended returns why it was ended, "" if it is
// open.
func certified(t *testing.T, a *Authorizer, v *verifiedCertificate) (ended func() string) {
	c := make(chan struct{})
	id := Identity{Kind: KindFrontProxy, User: &UserInfo{Name: "jane"}, certificate: v}
	release := a.watchGrant(id, parse(t, "/api/v1/pods?watch=1"), yesNow(), func() { close(c) })
	return func() string {
		select {
		case <-c:
			return release()
		default:
			return ""
		}
	}
}

// TestCertificateRecheck: a watch ends when the CA of its client's certificate is removed, or when
// the certificate or an intermediate CA has expired. Other watches of the same user go on, until the
// user has lost its rights.
func TestCertificateRecheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		answers := subjects{"jane": "yes"}
		up := &proxytest.FakeUpstream[Identity]{Answer: answers.answer}
		a := authorizerOf(up)
		go a.Run(t.Context())
		ca, other := newTestCA(t), newTestCA(t)
		removed, kept := ca.authorities(t), other.authorities(t)
		verify := func(a *clientCAs, certificates ...*x509.Certificate) *verifiedCertificate {
			t.Helper()
			v, ok := a.verify(certificates)
			if !ok {
				t.Fatal("not verified")
			}
			return v
		}
		middle := other.below(t, &x509.Certificate{Subject: pkix.Name{CommonName: "middle"},
			NotBefore: time.Now(), NotAfter: time.Now().Add(10 * time.Minute)})

		first := certified(t, a, verify(removed, ca.client(t, "jane")...))
		second := certified(t, a, verify(kept, other.client(t, "jane")...))
		third := certified(t, a, verify(kept, append(middle.client(t, "jane"), middle.Certificate())...))
		short := certified(t, a, verify(kept, other.sign(t, &x509.Certificate{ExtKeyUsage: forClients, Subject: pkix.Name{CommonName: "jane"},
			NotBefore: time.Now(), NotAfter: time.Now().Add(9 * time.Minute)})...))
		without := certified(t, a, nil)
		expect := func(what string, wants ...string) {
			t.Helper()
			synctest.Wait()
			for i, ended := range []func() string{first, second, third, short, without} {
				if got := ended(); got != wants[i] {
					t.Errorf("%s, %d: ended because %q, want %q", what, i+1, got, wants[i])
				}
			}
		}

		time.Sleep(3 * time.Minute)
		expect("at first", "", "", "", "", "")
		replace := func(content []byte) {
			if err := os.WriteFile(ca.File, content, 0o600); err != nil {
				t.Fatal(err)
			}
			_ = os.Chtimes(ca.File, time.Now(), time.Now())
			time.Sleep(10*time.Second + recheckInterval/verifyTicks) // package files looks at a file that often
		}
		replace(slices.Concat(other.PEM(), ca.PEM()))
		expect("with another authority beside it", "", "", "", "", "")
		replace(other.PEM())
		expect("without the authority", certificateInvalid, "", "", "", "")
		time.Sleep(8 * time.Minute)
		expect("with an authority between that has expired", certificateInvalid, "", certificateInvalid, certificateInvalid, "")
		if len(a.certified()) != 1 || len(a.grants) != 1 {
			t.Errorf("%d certified watches and %d grants are left", len(a.certified()), len(a.grants))
		}
		up.Mu.Lock()
		answers["jane"] = "no"
		up.Mu.Unlock()
		time.Sleep(2 * recheckInterval)
		synctest.Wait()
		for i, ended := range []func() string{second, without} {
			if !strings.Contains(ended(), "may no longer read") {
				t.Errorf("%d: a watch goes on without rights", i)
			}
		}
	})
}

// TestCertificateRecheckPace: any number of certificates is verified again within half of the
// interval, and not all at once.
func TestCertificateRecheckPace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := authorizerOf(&proxytest.FakeUpstream[Identity]{Answer: subjects{"jane": "yes"}.answer})
		ca := newTestCA(t)
		authority := ca.authorities(t)
		v, _ := authority.verify(ca.client(t, "jane"))
		const n = 4 * minVerified
		for range n {
			stale := *v
			stale.roots = nil
			certified(t, a, &stale)
		}
		left := func() (stale int) {
			for _, w := range a.certified() {
				if !w.certificate.current(time.Now()) {
					stale++
				}
			}
			return stale
		}
		for ticks := 0; left() > 0; ticks++ {
			before := left()
			if a.recheckCertificates(time.Now()); before-left() > minVerified+n/verifyTicks || ticks > verifyTicks {
				t.Fatalf("%d of %d were verified in tick %d", before-left(), n, ticks)
			}
		}
		if len(a.certified()) != n {
			t.Errorf("%d of %d are left", len(a.certified()), n)
		}
	})
}
