// Package exchange is one request and its answer, whatever the protocol. All rooms of proxy pass an
// [Exchange] around; only a room such as http1 knows how it is read and written.
//
// It knows HTTP's methods, fields and bodies. It knows no connection's bytes, no user and no cache.
//
// # What a protocol does
//
//	head and body read ──▶ Exchange ──▶ handler fills Response ──▶ written after the handler has returned
//
// A response is data, so that a handler may change its mind until it returns. It is one of:
//
//	Body      shared slices, of known length
//	Reader    bytes as they come: each read is sent on at once
//	Stream    a watch's events without end, which a shard writes to a [fanout.Sink]
//	Detached  a response that may last: a function that runs on when the handler has returned
//
// # What outlives the handler
//
// An Exchange is for its handler only: the protocol uses its memory again afterwards. The strings
// in it are not used again, and neither is its [Conn]. A Stream and a function of Detached go on,
// and so use nothing of the Exchange but these. When they have ended, the protocol decides whether
// the connection carries another request.
//
// # Another protocol
//
// HTTP/2 has no upgrades, so [Responder.Upgrade] fails there; its streams have one [Conn] in
// common. What fanout writes to a sink has HTTP/1.1's chunks around each event, as framing makes
// them once for all clients: a sink that needs none leaves the slices with the lengths out.
package exchange
