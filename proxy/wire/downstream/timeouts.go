package downstream

import "time"

// Limits for every client.
const (
	HeaderTimeout = 32 * time.Second // for a request's head; kube-apiserver's ReadHeaderTimeout
	IdleTimeout   = 90 * time.Second // between requests; the same as kube-apiserver's

	// RequestTimeout is for an ordinary request and its whole answer, unless the client wants less; the
	// default of kube-apiserver's --request-timeout. Watches, logs and upgrades have no such limit.
	RequestTimeout = 60 * time.Second

	// StallTimeout is the longest time without progress of one write to a client, or of one read of
	// its request's body.
	StallTimeout = 60 * time.Second
)
