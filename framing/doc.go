// Package framing turns the bytes of an upstream kube-apiserver into the bytes
// that watch clients receive. It holds pure functions and immutable values: no
// goroutine, lock, clock or socket.
//
// # An event's bytes
//
// kube-apiserver writes a watch event as one line of JSON
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes):
//
//	{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{…},…}}⏎
//
// [Scanner] reads such a line once, as far as ordering, selectors and lists
// need: the key, the resourceVersion, the labels and the selectable fields. The
// object's own bytes are never decoded into Go types and encoded again, because
// that would lose whatever a newer API server knows and we do not.
//
// One allocation then holds everything a client may be sent about that version
// of the object:
//
//	┌ ADDED head ──────────┐┌ MODIFIED head ──────────┐┌ object ─┐┌ tail ┐
//	7a3⏎{"type":"ADDED",…:  7a6⏎{"type":"MODIFIED",…:  {"kind"…}  }⏎⏎
//
// The live event is the slice from its own head to the tail, contiguous, so it
// is one element of a writev. The same version as an initial event is the ADDED
// head and the shared object with its tail, two elements. Both are complete
// HTTP/1.1 chunks (RFC 9112, section 7.1), which every connection can send as
// they stand; see [Frame].
//
// # What is synthesised
//
// Five things are not the upstream's bytes, and each is spliced from them:
//
//   - ADDED for initial events and for objects that enter a selector;
//   - DELETED for objects that leave a selector: the previous version with the
//     resourceVersion of the change ([Object.Left]);
//   - bookmarks, in the shape of the upstream's own ([BookmarkForm]);
//   - list envelopes, in the shape of the upstream's own ([ListForm]);
//   - ERROR events, from a Status that the caller has encoded ([ErrorFrame]).
//
// # Bounds
//
// A line is at most [MaxLine] bytes, which is also the most that client-go
// accepts. Nesting is bounded by the JSON decoder (10,000 levels). Every parser
// here returns an error for anything it does not understand and has a fuzz
// target.
package framing
