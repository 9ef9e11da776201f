// Package passthrough forwards to kube-apiserver the requests that are not served here, and returns
// its responses: ordinary requests, watches and logs that last, and upgraded connections. Requests
// with long selectors wait for their turn.
//
// It knows exchanges and the upstream. It knows no connection and no cache.
package passthrough
