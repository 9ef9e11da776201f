package auth

import (
	"crypto/x509"
	"crypto/x509/pkix"
	"os"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/watchfan/watchfan/proxy/proxytest"
	"github.com/watchfan/watchfan/proxy/request"
)

// vouched opens a watch and returns whether, and why, it was ended.
func vouched(t *testing.T, a *Authorizer, v *voucher) (ended func() string) {
	c := make(chan struct{})
	id := Identity{Kind: KindFrontProxy, User: &UserInfo{Name: "jane"}, voucher: v}
	release := a.WatchGrant(id, proxytest.MustParse(t, request.Parse, "/api/v1/pods?watch=1"), func() { close(c) })
	return func() string {
		select {
		case <-c:
			return release()
		default:
			return ""
		}
	}
}

// TestVouchers: a watch ends when the authority of its client's certificate is removed, or when an authority between the two has expired. It ends
// alone: others of the same user go on.
func TestVouchers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := authorizerOf(&proxytest.FakeUpstream[Identity]{Answer: subjects{"jane": "yes"}.answer})
		go a.Run(t.Context())
		ca, other := newTestCA(t), newTestCA(t)
		removed, kept := ca.authorities(t), other.authorities(t)
		voucherOf := func(a *authorities, certificates ...*x509.Certificate) *voucher {
			t.Helper()
			v, ok := a.verify(certificates)
			if !ok {
				t.Fatal("not verified")
			}
			return v
		}
		middle := other.below(t, &x509.Certificate{Subject: pkix.Name{CommonName: "middle"},
			NotBefore: time.Now(), NotAfter: time.Now().Add(10 * time.Minute)})

		first := vouched(t, a, voucherOf(removed, ca.client(t, "jane")...))
		second := vouched(t, a, voucherOf(kept, other.client(t, "jane")...))
		third := vouched(t, a, voucherOf(kept, append(middle.client(t, "jane"), middle.Certificate())...))
		without := vouched(t, a, nil)
		expect := func(what string, wants ...string) {
			t.Helper()
			synctest.Wait()
			for i, ended := range []func() string{first, second, third, without} {
				if got := ended(); got != wants[i] {
					t.Errorf("%s, %d: ended because %q, want %q", what, i+1, got, wants[i])
				}
			}
		}

		time.Sleep(3 * time.Minute)
		expect("at first", "", "", "", "")
		replace := func(content []byte) {
			if err := os.WriteFile(ca.File, content, 0o600); err != nil {
				t.Fatal(err)
			}
			_ = os.Chtimes(ca.File, time.Now(), time.Now())
			time.Sleep(reloadInterval + recheckInterval/renewalTicks)
		}
		replace(slices.Concat(other.PEM(), ca.PEM()))
		expect("with another authority beside it", "", "", "", "")
		replace(other.PEM())
		expect("without the authority", disowned, "", "", "")
		time.Sleep(8 * time.Minute)
		expect("with an authority between that has expired", disowned, "", disowned, "")
		if len(a.vouched) != 1 || len(a.grants) != 1 {
			t.Errorf("%d vouched watches and %d grants are left", len(a.vouched), len(a.grants))
		}
	})
}

// However many watches there are, they are looked at again within half of the interval, and not all at once.
func TestVouchersRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		a := authorizerOf(&proxytest.FakeUpstream[Identity]{Answer: subjects{"jane": "yes"}.answer})
		ca := newTestCA(t)
		authority := ca.authorities(t)
		v, _ := authority.verify(ca.client(t, "jane"))
		const n = 4 * leastRenewals
		for range n {
			stale := *v
			stale.roots = nil
			vouched(t, a, &stale)
		}
		left := func() (stale int) {
			for w := range a.vouched {
				if !w.voucher.good(time.Now()) {
					stale++
				}
			}
			return stale
		}
		for ticks := 0; left() > 0; ticks++ {
			before := left()
			if a.checkVouchers(time.Now()); before-left() > leastRenewals+n/renewalTicks || ticks > renewalTicks {
				t.Fatalf("%d of %d were renewed in tick %d", before-left(), n, ticks)
			}
		}
		if len(a.vouched) != n {
			t.Errorf("%d of %d are left", len(a.vouched), n)
		}
	})
}
