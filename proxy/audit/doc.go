// Package audit writes the audit log of what is served or refused here, in kube-apiserver's form (audit.k8s.io/v1).
//
// It knows requests and identities. It knows no cache and no upstream.
package audit
