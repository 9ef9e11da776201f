// Package fairness shares a few seats fairly among users, as kube-apiserver's API Priority and Fairness does: for the
// processors' time of cached reads, and for requests that cost kube-apiserver much.
//
// It knows identities. It knows neither requests nor connections.
package fairness
