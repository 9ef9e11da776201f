// Package websocket knows the WebSocket protocol (RFC 6455) as far as kube-apiserver speaks it: the
// handshake with its refusals, and frames in both directions. It knows bytes and request heads. It
// knows no connection, no watch and no user.
//
//	handshake.go  the response to a handshake
//	frame.go      the frames that a server sends
//	batch.go      a batch of events as messages, one for each event
//	receiver.go   the frames that a client sends, the answers to them, and where passed-through frames end
//
// # A message
//
// fanout hands out HTTP/1.1 chunks that all clients share. A message is the same memory without
// the chunk's framing, behind a header of its own of 2 to 10 bytes. A server's frames are not
// masked, so no payload is copied.
//
//	chunk     1a8⏎ {"type":"ADDED", … }⏎ ⏎
//	message   81 7e 01 a8  {"type":"ADDED", … }⏎
//
// # kube-apiserver's behaviour
//
// kube-apiserver uses golang.org/x/net/websocket, and its behaviour follows from that package. It
// accepts every Origin that parses, ignores a client's messages, and answers a ping with at most 125
// bytes of the ping's payload. It accepts no extension, and so no compression.
//
// # Why no library
//
// golang.org/x/net/websocket, github.com/gorilla/websocket and github.com/coder/websocket take the
// connection from net/http, copy each message into a buffer of their own, and need a goroutine that
// reads. github.com/gobwas/ws hands connections over. But its handshake rejects requests that
// kube-apiserver accepts, such as one with a key that is not 24 characters long, and its refusals
// are worded otherwise. Only the headers of frames would be left for it.
package websocket
