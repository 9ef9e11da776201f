// Package account counts the memory that clients make the proxy hold. Each byte counts for one
// [Source]: a user, a token, or the address of a stranger. It knows nothing else of the proxy.
//
// Whoever holds memory for a client opens an [Entry] and says how many bytes it holds, before it
// holds them. There are three bounds: for each source, for all strangers together, and for all
// sources together. A source that would exceed its own bound is refused. If a bound that sources
// share is reached, the largest source is cut, and not the next comer: everything that it holds and
// that can be cut ends. [Ledger.Relieve] cuts the largest source when memory is short for another
// reason.
//
// What counts, by [Kind]:
//
//	heads        heads of requests that are longer than usual
//	bodies       request bodies that have been received and not yet sent on
//	answers      answers that the client has not read
//	watches      batches and objects that only a parked watch keeps, and the long heads that the audit log keeps
//	connections  connections that carry no request now
//	copies       caches that only one source uses, of resources that another cache holds too
//	lanes        other caches that only one source uses
//
// The first five pass. The bounds are about the first four. The connections of strangers have a bound of
// their own: each takes some memory from its first byte on, and thousands can come within the second
// between two looks at the memory. One address leaves a quarter of it to the others. The connections of
// users are bounded by their number, but count when memory is short. Copies have a bound of their own for
// each source. Lanes have none, because the next client of the resource uses the same lane. They are given
// up last.
//
// # Concurrency
//
// All methods may be called from any goroutine. The ledger's lock is held for map and integer
// operations only. Cuts are called without it, on the goroutine that found the bound exceeded, and
// must not wait.
package account
