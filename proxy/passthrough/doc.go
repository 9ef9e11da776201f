// Package passthrough forwards to kube-apiserver what is not served here, and its answers back:
// ordinary requests, watches and logs that last, and upgraded connections. Long selectors wait for
// their turn.
//
// It knows connections and the upstream. It knows no cache.
package passthrough
