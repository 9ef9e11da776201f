package auth

import "time"

// leastRenewals is how many vouchers, and renewalTicks after how many ticks of authorizer.Run all
// of them, are renewed when all have to be at once, because the authorities' file has changed. One
// takes about 0.1 ms.
const leastRenewals, renewalTicks = 256, 30

// checkVouchers ends the watches whose clients nobody vouches for any longer: a certificate of
// theirs, or of their front proxy, or of one of its authorities has expired, or the authority is no
// longer in its file. It is called by Run, once a tick.
func (a *Authorizer) checkVouchers(now time.Time) {
	a.mu.Lock()
	watches := make([]*openWatch, 0, len(a.vouched))
	for w := range a.vouched {
		watches = append(watches, w)
	}
	a.mu.Unlock()
	ended, left := 0, leastRenewals+len(watches)/renewalTicks
	for _, w := range watches {
		if w.voucher.good(now) {
			continue
		}
		if left--; left < 0 {
			break
		}
		if !w.voucher.renew() && a.disown(w) {
			ended++
		}
	}
	if ended > 0 {
		a.log.Info("Revoked watches", "watches", ended, "reason", disowned)
	}
}

const disowned = "a certificate has expired, or its authority is no longer trusted"

// disown ends one watch, and reports whether it was still open.
func (a *Authorizer) disown(w *openWatch) bool {
	a.mu.Lock()
	_, open := a.vouched[w]
	if open {
		a.endLocked(w)
		w.revoked = disowned
	}
	a.mu.Unlock()
	if open {
		w.revoke()
	}
	return open
}
