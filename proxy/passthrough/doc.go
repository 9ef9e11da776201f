// Package passthrough forwards to kube-apiserver the requests that are not served here, and returns
// its responses: ordinary requests, watches and logs that last, and upgraded connections. Requests
// with long selectors wait for their turn. The package keeps a register of the watches that it passes
// through, with the reason for each.
//
// Requests are never joined here: each goes upstream with its own client's rights. Lists of Tables that
// clients share are answered in package cached.
//
// It knows exchanges and the upstream. It knows no connection and no cache.
package passthrough
