package auth

import (
	"strings"
	"time"
	"unique"
)

// maxReason bounds what is kept of a reason, in bytes. A reason of RBAC names a binding, a role and
// a subject, usually of up to 253 bytes each. A webhook's reason may have any length. remember.Most
// different reasons take 16 MB.
const maxReason = 2 << 10

// outcome is what a decision says.
type outcome int

const (
	unclear outcome = iota // kube-apiserver has not said yes or no
	denied
	allowed
	busy // kube-apiserver was not asked: too many reviews wait, and this one is refused (429)
)

// Decision says whether a client may do something, and why. The zero Decision is unclear.
type Decision struct {
	outcome outcome
	// unauthenticated says that kube-apiserver did not accept the client's token (401).
	unauthenticated bool
	asked           time.Time // when the review was sent; zero if there was none
	// reason is zero if there is none, or if nobody reads it. Thousands of decisions share one
	// reason, which is in memory once, for as long as one of them has it.
	reason unique.Handle[string]
	// reviewID is the auditID of the review in kube-apiserver's audit log; "" if nobody reads it.
	reviewID string
	// warnings are the Warning headers of the answer to a review with the client's own token, with
	// "\n" between them; zero if there are none. As reason, they are in memory once.
	warnings unique.Handle[string]
}

// Allow returns the decision that a client may do something.
func Allow(reason string) Decision {
	return Decision{outcome: allowed, reason: unique.Make(reason)}
}

// Allowed reports whether the client may do what it asks for.
func (d Decision) Allowed() bool { return d.outcome == allowed }

// Unauthenticated reports whether kube-apiserver has refused the client's token since a time (401). It
// would refuse any request that came with the token then.
func (d Decision) Unauthenticated(since time.Time) bool {
	return d.unauthenticated && !d.asked.Before(since)
}

// Busy reports whether too many reviews wait for kube-apiserver to be asked.
func (d Decision) Busy() bool { return d.outcome == busy }

// Reason returns the reason, in the words of kube-apiserver's authorizers.
func (d Decision) Reason() string {
	if d.reason == (unique.Handle[string]{}) {
		return ""
	}
	return d.reason.Value()
}

// ReviewID returns the auditID under which kube-apiserver's audit log has the review, "" if there was
// none or nobody reads it.
func (d Decision) ReviewID() string { return d.reviewID }

// maxWarnings bounds what is kept of Warnings, in bytes. kube-apiserver's about a credential has 150.
const maxWarnings = 1 << 10

// warned returns d with the Warnings of a review's answer. None is kept if they are too long.
func (d Decision) warned(warnings []string) Decision {
	if all := strings.Join(warnings, "\n"); all != "" && len(all) <= maxWarnings {
		d.warnings = unique.Make(all)
	}
	return d
}

// Warnings returns the Warning headers that kube-apiserver adds to each answer to the client because
// of its token, as for a token of a Secret that was made for its service account. Nobody else may be
// sent them.
func (d Decision) Warnings() []string {
	if d.warnings == (unique.Handle[string]{}) {
		return nil
	}
	return strings.Split(d.warnings.Value(), "\n")
}

// ownRights is why the proxy itself may read.
var ownRights = Allow("the proxy's own identity, whose rights every client of the insecure port has")

// Truncated returns the first most bytes of s, marked as kube-apiserver marks a user agent that it
// cuts.
func Truncated(s string, most int) string {
	if len(s) > most {
		return s[:most] + "...TRUNCATED"
	}
	return s
}
