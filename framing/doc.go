// Package framing turns the bytes of an upstream kube-apiserver into the bytes that watch clients
// receive. It holds pure functions and immutable values: no goroutine, lock, clock or socket.
//
// # An event's bytes
//
// kube-apiserver writes a watch event as one line of JSON
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes):
//
//	{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{…},…}}⏎
//
// [Scanner] reads such a line once, as far as ordering, selectors and lists need: the key, the
// resourceVersion, the labels and the selectable fields. The object's own bytes are never decoded
// into Go types and encoded again, because that would lose whatever a newer API server knows and we
// do not.
//
// One allocation then holds everything a client may be sent about that version of the object:
//
//	┌ ADDED head ──────────┐┌ MODIFIED head ──────────┐┌ object ─┐┌ tail ┐
//	7a3⏎{"type":"ADDED",…:  7a6⏎{"type":"MODIFIED",…:  {"kind"…}  }⏎⏎
//
// The live event is the slice from its own head to the tail, contiguous, so it is one element of a
// writev. The same version as an initial event is the ADDED head and the shared object with its
// tail, two elements. Both are complete HTTP/1.1 chunks (RFC 9112, section 7.1), which every
// connection can send as they stand; see [Frame].
//
// # Protobuf
//
// In protobuf (https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding) an
// event is a WatchEvent behind its length, and in it is the object: a runtime.Unknown behind a
// magic number, which tells the type and holds the message of that type. The whole frame that adds
// the pod x at resourceVersion 7, of which nothing else is known:
//
//	2c⏎                              chunk size: 44 bytes in hex
//	00 00 00 28                      event: 40 bytes, big endian
//	0a 05 ADDED                      WatchEvent.type
//	12 1f 0a 1d                      WatchEvent.object.raw: 29 bytes, the object
//	    k8s\0                          magic
//	    0a 09 0a 02 v1 12 03 Pod       Unknown.typeMeta: apiVersion, kind
//	    12 08                      ┐   Unknown.raw, the Pod
//	        0a 06                  │     metadata
//	            0a 01 x            │       name
//	            32 01 7            ┘       resourceVersion
//	    1a 00 22 00                    Unknown.contentEncoding, contentType
//	⏎
//
// A list is an Unknown, too: its raw is ListMeta and then the items, each of which is what is
// marked above with its tag and length, because Unknown.raw and the items of every list happen to
// be field 2. A pod that was added shares its bytes with the list of pods that holds it:
//
//	k8s\0                             magic
//	0a 0d 0a 02 v1 12 07 PodList      Unknown.typeMeta
//	12 13                             Unknown.raw, the PodList
//	    0a 07 0a 00 12 01 7 1a 00       metadata: selfLink, resourceVersion, continue
//	    12 08 0a 06 0a 01 x 32 01 7     the item
//	1a 00 22 00
//
// A length stands before what it counts. So another resourceVersion, and an annotation less, change
// the lengths of metadata and raw; those further out belong to the event and are written anew for
// each. What stands around an object is read only in the form above, without a byte more. Within
// the object, fields may come in any order but for the metadata, which is first, and what we do not
// know stays as it is.
//
// # CBOR
//
// Behind a feature gate (CBORServingAndStorage; KEP-4222), kube-apiserver also writes CBOR (RFC
// 8949): the members that JSON has, in maps of any order, strings as byte strings. An event is one
// data item of a sequence (RFC 8742) behind the tag of self-described CBOR, and its object has that
// tag again. The pod from above:
//
//	54⏎                                     chunk size: 84 bytes in hex
//	d9d9f7 a2                               event: tag, a map of two entries
//	    44 type 45 ADDED
//	    46 object d9d9f7 a3                 object: tag, a map of three entries
//	        44 kind 43 Pod              ┐
//	        4a apiVersion 42 v1         ┘     its type
//	        48 metadata a2              ┐
//	            44 name 41 x            │
//	            4f resourceVersion 41 7 ┘     the rest
//	⏎
//
// Items of built-in types have the rest alone behind the head of a smaller map. That is why the
// scanner puts an object's type first; all other entries stay in the order in which they came.
// Lengths of maps and arrays count entries and not bytes, so nothing else changes with the
// resourceVersion. Indefinite lengths, which kube-apiserver does not write, are refused.
//
// # Compression
//
// What many clients are sent is compressed once and stands in a gzip member of each of them (RFC
// 1952). A list's items are one run of DEFLATE blocks, with what differs around them stored; see
// [GzipMember]. A watch is a member for as long as it lasts:
//
//	a⏎ 1f 8b 08 … ⏎              GzipStart
//	<size>⏎ blocks 00 00 ff ff⏎  GzipChunk: an event, or several
//	…
//	a⏎ 03 00 CRC-32 length ⏎     Checksum.GzipEnd: of what this client was sent
//	0⏎⏎                          LastChunk
//
// Each chunk ends with an empty stored block, at a byte boundary, so whoever has read it can
// decompress every event in it. Blocks may refer to what stands before them: an event that is
// compressed behind another ([GzipFrames]) is for those only who were sent that one just before.
// All that a client's member needs of its own is the checksum of its plain bytes, and that follows
// from the checksums of its parts.
//
// # What is synthesised
//
// Five things are not the upstream's bytes, and each is spliced from them:
//
//   - ADDED for initial events and for objects that enter a selector;
//   - DELETED for objects that leave a selector: the previous version with the resourceVersion of
//     the change ([Object.Left]);
//   - bookmarks, in the shape of the upstream's own ([BookmarkForm]);
//   - list envelopes, in the shape of the upstream's own ([ListForm]);
//   - ERROR events, from a Status that the caller has encoded ([ErrorFrame]).
//
// # Bounds
//
// An event and an item of a list have at most [MaxEvent] bytes, as many as client-go accepts of an
// event. JSON has at most 10,000 levels ([ErrTooDeep]), groups of protobuf, which Kubernetes has
// none of, as many; messages of protobuf and maps of CBOR are entered only as deep as a selectable
// field lies, and whatever is in them is passed over without recursion, in time that grows with its
// bytes. Every parser here returns an error for anything it does not understand and has a fuzz
// target.
package framing
