// Package upstream is the client to kube-apiserver: transports and credentials, discovery of APIs
// and their encodings, the fields that objects can be selected by, and the detection of request
// loops.
//
// It knows identities, because requests are made in a client's name. It knows no client's
// connection and no cache.
//
// # Watchfans in a row
//
// The upstream may be another watchfan. All guarantees hold through both, proofs of freshness too:
// the watch that probes how far upstream is passes through the next watchfan (see request.probes).
// For proofs by list, the next watchfan has a lane of metadata besides. The first watchfan
// authenticates to the next one as any client does: with a token, or with a certificate of the next
// one's --client-ca-file. A cycle of watchfans is detected; see via.
package upstream
