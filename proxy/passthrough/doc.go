// Package passthrough forwards to kube-apiserver the requests that are not served here, and returns
// its responses: ordinary requests, watches and logs that last, and upgraded connections. Requests
// with long selectors wait for their turn. The package keeps a register of the watches that it
// passes through, with the reason for each.
//
// Requests are never joined here: each goes upstream with its own client's rights. Lists of Tables
// that clients share are answered in package cached.
//
// It knows exchanges and the upstream. It knows no connection and no cache.
//
//	passthrough.go     one request: rewritten, sent, answered
//	request_body.go    the request's body, sent on as it comes
//	response_body.go   the response's body, and how it ends
//	trim.go            small answers without the fields of the client's view
//	boundary.go        where an event of a watch ends, so that the watch can end there
//	tunnel.go          exec, attach, port-forward, and WebSockets that no cache serves
//	long_request.go    turns of requests with long selectors
//	watches.go         the register
//
// A watch that passes through while its lane is being filled ends soon afterwards, between two
// events, if its client is known to resume. When the proxy stops, the client of a WebSocket is sent
// a CLOSE frame.
package passthrough
