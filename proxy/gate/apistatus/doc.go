// Package apistatus encodes errors as Kubernetes Status objects in kube-apiserver's words. It
// writes them as responses, and as ERROR events of watches in each encoding.
//
// The package knows metav1.Status and HTTP responses. It knows no users, no upstream and not the
// meaning of requests.
package apistatus
