// Package upstream is the client to kube-apiserver: transports and credentials, what APIs there are
// and how they are encoded, the fields that objects can be selected by, and the detection of
// proxies that lead to themselves.
//
// It knows identities, because requests are made in a client's name. It knows no client's
// connection and no cache.
//
// # Watchfans in a row
//
// The upstream may be a watchfan. All that is said here holds through both: proofs of freshness
// too, because the watch that is to show how far upstream is passes through the next watchfan (see
// request.probes). A lane of metadata is added there, for proofs by list. The upper shows who it is
// as any client does: with a token, or with a certificate of the lower's --client-ca-file. A cycle
// is found out; see via.
package upstream
