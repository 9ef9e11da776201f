// Package exchange is one request and its response, whatever the protocol. All packages of proxy
// pass an [Exchange] around. Only a protocol package such as http1 or http2 reads and writes it.
//
// It knows HTTP's methods, fields and bodies. It knows no connection's bytes, no user and no cache.
//
// It also contains two things that all steps of a request share. A context reports when the request
// begins to wait ([Waits]). A [Guard] ends a client whose request panics.
//
// # What a protocol does
//
//	head and body read ──▶ Exchange ──▶ handler fills Response ──▶ written after the handler has returned
//
// A [Response] is data: a handler may change it until it returns. A request that the protocol itself
// rejects has a [Refusal]. A func that the protocol is given makes the response of it, in the API's form.
//
// # What outlives the handler
//
// An Exchange is valid only until its handler returns. The protocol then reuses its memory. It does
// not reuse the strings or the [Conn]. A Stream and a function of Detached run on, and may use only
// these of the Exchange. A function of Later gets an Exchange. When they have ended, the protocol
// decides whether the connection carries another request.
//
// # Several protocols
//
// HTTP/2 has no upgrades, and [Responder.Upgrade] fails there. Each of its streams has a [Conn],
// and these share one TCP connection. fanout writes each event to a sink with the chunk framing of
// HTTP/1.1, which package framing makes once for all clients. A sink of another protocol takes the
// payloads out of it ([framing.NextPayload]).
package exchange
