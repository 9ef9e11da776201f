package downstream

import "time"

// Limits for every client.
const (
	HeaderTimeout = 32 * time.Second // for a request's head; kube-apiserver's ReadHeaderTimeout
	IdleTimeout   = 90 * time.Second // between requests; kube-apiserver's

	// StallTimeout is how long one write to a client, or one read of its request's body, may take
	// without any progress.
	StallTimeout = 60 * time.Second
)
