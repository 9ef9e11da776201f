// Package audit writes the audit log of requests that this proxy serves or refuses itself. The
// format is kube-apiserver's (audit.k8s.io/v1).
//
// The package knows requests and identities. It knows no cache and no upstream.
//
// kube-apiserver's audit log does not contain reads that are served from a cache. --audit-log-path
// writes them in the same form and with the same reasons. A request has the same auditID in both logs.
// See [Log] for what is written when. Reads of a resource that --exclude names pass through and stay in
// kube-apiserver's log only.
package audit
