// Package websocket knows the WebSocket protocol (RFC 6455) as far as kube-apiserver speaks it: the
// handshake with its refusals, and frames in both directions. It knows bytes and request heads. It
// knows no connection, no watch and no user.
//
//	handshake.go  the response to a handshake
//	frame.go      the frames that a server sends
//	batch.go      a batch of events as messages, one for each event
//	receiver.go   the frames that a client sends, and the answers to them
//	progress.go   where the frames of a passed-through server end
//
// # A message
//
// fanout hands out HTTP/1.1 chunks that all clients share. A message is the same memory without the
// chunk's framing, behind a header of its own of 2 to 10 bytes. A server's frames are not masked, so
// no payload is copied.
//
//	chunk     1a8⏎ {"type":"ADDED", … }⏎ ⏎
//	message   81 7e 01 a8  {"type":"ADDED", … }⏎
//
// # kube-apiserver's behaviour
//
// kube-apiserver uses golang.org/x/net/websocket, and so does its way with clients follow that
// package: any Origin will do that parses, a message of a client is ignored, a ping is answered with
// at most 125 bytes of its payload. Extensions, compression among them, are never accepted.
//
// # Why no library
//
// golang.org/x/net/websocket, github.com/gorilla/websocket and github.com/coder/websocket take the
// connection from net/http, copy each message into a buffer of their own, and need a goroutine that
// reads. github.com/gobwas/ws hands connections over, but its handshake rejects what kube-apiserver
// accepts, such as a key that is not 24 characters long, and answers in other words. What remains of
// a library is the header of a frame.
package websocket
