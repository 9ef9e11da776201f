// Package upstream is the client to kube-apiserver: transports and credentials, what APIs there are and how they are
// encoded, the fields that objects can be selected by, and the detection of proxies that lead to themselves.
//
// It knows identities, because requests are made in a client's name. It knows no client's connection and no cache.
package upstream
