// Package apistatus writes errors as Kubernetes Status objects, in kube-apiserver's words: as
// responses, and as ERROR events of watches in each encoding.
//
// It knows metav1.Status and HTTP responses. It knows no request's meaning, no user and no
// upstream.
package apistatus
