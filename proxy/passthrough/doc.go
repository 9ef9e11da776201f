// Package passthrough forwards to kube-apiserver the requests that are not served here, and returns
// its responses: ordinary requests, watches and logs that last, and upgraded connections. Requests
// with long selectors wait for their turn. The package keeps a register of the watches that it
// passes through, with the reason for each.
//
// Requests are never joined, not even the same list of Tables for several clients at one instant.
// Each caller must have been allowed by kube-apiserver, and must be shown a state at least as new as
// its own request. So only requests with the same credentials could share an answer, and only one
// that is sent after all of them have come. Kubectls that list at the same instant with the same
// credentials are rare, each would wait for the list before its own, and kube-apiserver's audit log
// would miss all but one of them.
//
// It knows exchanges and the upstream. It knows no connection and no cache.
//
//	passthrough.go     one request: rewritten, sent, answered
//	request_body.go    the request's body, sent on as it comes
//	response_body.go   the response's body, and how it ends
//	boundary.go        where an event of a watch ends, so that the watch can end there
//	tunnel.go          exec, attach, port-forward, and WebSockets that no cache serves
//	long_request.go    turns of requests with long selectors
//	watches.go         the register
//
// A watch that passes through while its lane is being filled ends soon afterwards, between two
// events, if its client is known to resume. When the proxy stops, the client of a WebSocket is sent
// a CLOSE frame.
package passthrough
