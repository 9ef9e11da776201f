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
//	streaming_list.go  watches whose initial events no server would end
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
// # Streaming lists
//
// A client that sends sendInitialEvents waits for the bookmark that ends the initial events (KEP-3157).
// kube-apiserver sends it, or refuses (422). A server behind kube-apiserver (an APIService) may accept
// the parameter and send no such bookmark: then client-go never syncs. Such a watch is refused here, in
// kube-apiserver's words, and client-go lists at once:
//
//	the server's response                     the client gets
//	any but 200: a denial, an outage          the same
//	200, and it ends lists, or that is not    the same
//	known
//	200 or nothing, and it never ends them    422
//
// Nothing is asked about a version that kube-apiserver is known to serve itself (Config.Own). Otherwise
// whether a server ends lists is asked for each resource, because one server may have both kinds. The
// question is a watch of nothing, in the client's name, after the response to the client's own watch has
// begun, or has not come in headWait. If the bookmark does not come in probeTime, it never does: to list
// is right in any doubt. That time begins when the server has said what the version has, because
// kube-apiserver itself may be slow. The answer is used for half a minute. Later it is used too, and asked
// again meanwhile.
//
// What is refused is not made from a list and a watch instead. Of the clients that send the parameter by
// default, all list when they are refused: client-go since 0.27, and what is built on it (kubectl, k9s,
// Rancher). kube-rs sends it only where its user asks for it, and reports the refusal.
//
// # Ends
//
// A watch is recalled when its lane has been filled, if its client is known to resume, when its
// connection is dismissed (exchange.Conn), or when a rule that keeps it from the caches has changed
// (exchange.Follower). It ends soon afterwards where its client resumes without a loss. A WebSocket gets
// a CLOSE frame then, and when the proxy stops, unless it is in the middle of another frame.
package passthrough
