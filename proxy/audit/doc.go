// Package audit writes the audit log of what is served or refused here, in kube-apiserver's form
// (audit.k8s.io/v1).
//
// It knows requests and identities. It knows no cache and no upstream.
//
// # Audit
//
// kube-apiserver's audit log does not show what is read from a cache. --audit-log-path writes it,
// in the same form and with the same reasons, and so one may be appended to the other: what is
// passed through is in kube-apiserver's alone, what is served or refused here in ours alone, with
// the Audit-Id that the client was told. See auditLog for what is written when, and what it costs;
// and --exclude for resources that are to stay in one log.
package audit
