// Package auth says who a client is, and whether it may do what its request asks for.
//
// Clients show who they are by a token, a certificate or a front proxy's headers. kube-apiserver decides what they may do:
// a token is asked about with that token, a user that is known by name is asked about by watchfan's own account. Answers
// are remembered for a few seconds, reviews are shared fairly, and open watches are asked about again.
//
// It knows requests, and an upstream only as something that answers reviews ([Doer]). It knows no cache and no connection.
package auth
