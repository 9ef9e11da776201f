// Package passthrough forwards to kube-apiserver what is not served here, and its answers back:
// ordinary requests, watches and logs that last, and upgraded connections. Long selectors wait for
// their turn.
//
// It knows exchanges and the upstream. It knows no connection and no cache.
package passthrough
