// Package passthrough forwards to kube-apiserver the requests that are not served here, and returns
// its responses: ordinary requests, watches and logs that last, and upgraded connections. Requests
// with long selectors wait for their turn. The package keeps a register of the watches that it
// passes through, with the reason for each.
//
// Requests are never joined here: each goes upstream with its own client's rights. Lists of Tables
// that clients share are answered in package cached.
//
// It knows exchanges, the upstream and accounts. It knows no connection and no cache.
//
//	passthrough.go     one request: rewritten, sent, answered
//	holding.go         what the proxy holds for the request, on its source's account
//	turns.go           turns of requests with long selectors and of strangers; bodies that kube-apiserver asks for
//	request_body.go    the request's body, sent on as it comes
//	response_body.go   the response's body, and how it ends
//	trim.go            small answers without the fields of the client's view
//	boundary.go        where an event of a watch ends, so that the watch can end there
//	tunnel.go          exec, attach, port-forward, and WebSockets that no cache serves
//	watches.go         the register
//
// # Memory
//
// What a request can hold counts for its source from its admission to its end (package account), and
// the part of a stranger's body that the protocol holds before that: a few KiB for itself, more if it
// may last, the received part of its body, and the part of the response that waits to be read. That is
// at most [upstream.Window], no more than the response is long, and a copy buffer that fits it. A
// response that may last counts while the client is being written to. A source that holds its share
// waits for up to 5 s, and is then told to try again (429). A request that is cut ends here and
// upstream: its stream is reset, or its HTTP/1.1 connection closed.
//
// An ordinary request has 60 s in all, its body and its response included, as in kube-apiserver.
//
// # Strangers
//
// A stranger's request waits for its turn among all addresses, and goes upstream over HTTP/1.1
// (package upstream). Its body is not read before kube-apiserver asks for it, which it does when it
// has authenticated and authorized the request. Once kube-apiserver has accepted the token, its owner
// is a known client.
//
// # Ends
//
// A watch that passes through while its lane is being filled ends soon afterwards, between two
// events, if its client is known to resume. When the proxy stops, the client of a WebSocket is sent
// a CLOSE frame.
package passthrough
