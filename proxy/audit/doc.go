// Package audit writes the audit log of what is served or refused here, in kube-apiserver's form
// (audit.k8s.io/v1).
//
// It knows requests and identities. It knows no cache and no upstream.
//
// # Audit
//
// kube-apiserver's audit log does not show what is read from a cache. --audit-log-path writes it, in
// the same form and with the same reasons. The two logs can be joined: a request has the same auditID
// in both. What is served or refused here is in this log alone, what is passed through in
// kube-apiserver's. A request that is passed through in the name of another user is in both. See
// [Log] for what is written when, and what it costs. --exclude keeps a resource in kube-apiserver's
// log alone.
package audit
