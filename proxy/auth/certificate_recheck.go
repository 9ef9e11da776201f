package auth

import "time"

// When a file of CAs changes, the certificates of all open watches have to be verified again. One
// verification takes about 0.1 ms. So each tick of Run verifies at least minVerified of them, and
// all of them are verified after verifyTicks ticks.
const minVerified, verifyTicks = 256, 30

// certificateInvalid is why a watch of a client certificate is revoked.
const certificateInvalid = "a certificate has expired, or its authority is no longer trusted"

// recheckCertificates ends the watches of clients and front proxies with a certificate that is no
// longer good: a certificate of its chain has expired, or its CA is no longer in the file. Run
// calls it once a tick.
func (a *Authorizer) recheckCertificates(now time.Time) {
	a.mu.Lock()
	watches := make([]*openWatch, 0, len(a.certified))
	for w := range a.certified {
		watches = append(watches, w)
	}
	a.mu.Unlock()
	ended, left := 0, minVerified+len(watches)/verifyTicks
	for _, w := range watches {
		if w.certificate.current(now) {
			continue
		}
		if left--; left < 0 {
			break
		}
		if !w.certificate.verify() && a.revokeWatch(w, certificateInvalid) {
			ended++
		}
	}
	if ended > 0 {
		a.log.Info("Revoked watches", "watches", ended, "reason", certificateInvalid)
	}
}

// revokeWatch ends one watch, and reports whether it was still open.
func (a *Authorizer) revokeWatch(w *openWatch, reason string) bool {
	a.mu.Lock()
	_, open := a.certified[w]
	if open {
		a.endLocked(w)
		w.revoked = reason
	}
	a.mu.Unlock()
	if open {
		w.revoke()
	}
	return open
}
