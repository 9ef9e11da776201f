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
	watches := a.certified()
	ended, left := 0, minVerified+len(watches)/verifyTicks
	for _, w := range watches {
		if w.certificate.current(now) {
			continue
		}
		if left--; left < 0 {
			break
		}
		if !w.certificate.verify() && a.revokeInvalid(w) {
			ended++
		}
	}
	if ended > 0 {
		a.log.Info("Revoked watches", "watches", ended, "reason", certificateInvalid)
	}
}

// certified returns the open watches with a certificate.
func (a *Authorizer) certified() (watches []*OpenWatch) {
	a.mu.Lock()
	defer a.mu.Unlock()
	for _, g := range a.grants {
		if g.id.User == nil {
			continue // their clients have shown tokens
		}
		for _, w := range g.watches {
			if w.certificate != nil {
				watches = append(watches, w)
			}
		}
	}
	return watches
}

// revokeInvalid ends one watch because of its certificate, and reports whether it was still open.
func (a *Authorizer) revokeInvalid(w *OpenWatch) bool {
	a.mu.Lock()
	open := w.openLocked()
	if open {
		a.endLocked(w)
		w.invalid = true
	}
	a.mu.Unlock()
	if open {
		w.watch.Revoke()
	}
	return open
}
