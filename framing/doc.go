// Package framing turns the bytes of an upstream kube-apiserver into the bytes that watch clients
// receive. It holds pure functions and immutable values: no goroutine, no lock, no clock and no
// socket.
//
// # An event's bytes
//
// kube-apiserver writes a watch event as one line of JSON
// (https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes):
//
//	{"type":"MODIFIED","object":{"kind":"Pod","apiVersion":"v1","metadata":{…},…}}⏎
//
// [Scanner] reads such a line once. It takes what ordering, selectors and lists need: the key, the
// resourceVersion, the labels and the selectable fields. The object's own bytes are never decoded
// into Go types and encoded again, because that would lose fields that a newer API server knows and
// this package does not.
//
// One allocation then holds everything that a client may be sent about this version of the object:
//
//	┌ ADDED head ──────────┐┌ MODIFIED head ──────────┐┌ object ─┐┌ tail ┐
//	7a3⏎{"type":"ADDED",…:  7a6⏎{"type":"MODIFIED",…:  {"kind"…}  }⏎⏎
//
// The live event is the contiguous slice from its own head to the tail, so it is one element of a
// writev. The same version as an initial event is two elements: the ADDED head, and the shared
// object with its tail. Both are complete HTTP/1.1 chunks (RFC 9112, section 7.1): see [Frame]. A
// connection over HTTP/1.1 sends them unchanged. HTTP/2 and WebSockets have other framing, and send
// the payloads of the same chunks ([NextPayload]).
//
// # Protobuf
//
// In protobuf (https://kubernetes.io/docs/reference/using-api/api-concepts/#protobuf-encoding) an
// event is its length and then a WatchEvent. The WatchEvent contains the object as a
// runtime.Unknown after a magic number. The runtime.Unknown names the type and contains the message
// of that type. This is the whole frame that adds the pod x at resourceVersion 7, which has no
// other fields:
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
// A list is a runtime.Unknown too. Its raw is ListMeta and then the items. An item is the part that
// is marked above, with its tag and length, because Unknown.raw and the items of every list are
// both field 2. So an added pod shares its bytes with the list of pods that contains it:
//
//	k8s\0                             magic
//	0a 0d 0a 02 v1 12 07 PodList      Unknown.typeMeta
//	12 13                             Unknown.raw, the PodList
//	    0a 07 0a 00 12 01 7 1a 00       metadata: selfLink, resourceVersion, continue
//	    12 08 0a 06 0a 01 x 32 01 7     the item
//	1a 00 22 00
//
// In protobuf a length precedes the bytes that it counts. So another resourceVersion, or the
// removal of an annotation, changes the lengths of metadata and raw. The lengths outside those
// belong to the event and are written anew for each event.
//
// The bytes around an object are accepted only in exactly the form above. Within the object,
// metadata comes first and the other fields in any order. Unknown fields stay as they are.
//
// # CBOR
//
// With a feature gate (CBORServingAndStorage; KEP-4222), kube-apiserver also writes CBOR (RFC
// 8949): the same members as JSON, in maps of any order, with strings as byte strings. An event is
// one data item of a sequence (RFC 8742). It begins with the tag of self-described CBOR, and its
// object has that tag again. This is the pod from above:
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
// A list item of a built-in type has only the rest, in a smaller map. That is why the scanner moves
// an object's type to the front. All other entries stay in their order. The heads of maps and
// arrays count entries and not bytes, so nothing else changes with the resourceVersion. Indefinite
// lengths, which kube-apiserver does not write, are rejected.
//
// # Tables
//
// kubectl watches in Tables, whose rows kube-apiserver makes when it writes an event. Such an event
// is one line of JSON with a Table of one row. The row has the object or its metadata:
//
//	{"type":"ADDED","object":{"kind":"Table",…,"columnDefinitions":[…],"rows":[{"cells":["x","5s"],"object":{…}}]}}⏎
//
// Only the first event that a client is sent has column definitions; the others have null. So
// [NewTableScanner] keeps the definitions apart, and [Columns.Open] makes a first event of any.
//
// # Compression
//
// Bytes that many clients are sent are compressed once, and become part of a gzip member for each
// client (RFC 1952). In a list, the items are one run of DEFLATE blocks, and the parts around them,
// which differ between responses, are stored: see [GzipMember]. A watch is one member for as long
// as it lasts:
//
//	a⏎ 1f 8b 08 … ⏎              GzipStart
//	<size>⏎ blocks 00 00 ff ff⏎  GzipChunk: an event, or several
//	…
//	a⏎ 03 00 CRC-32 length ⏎     Checksum.GzipEnd: of what this client was sent
//	0⏎⏎                          LastChunk
//
// Each chunk ends with an empty stored block, at a byte boundary, as zlib's Z_SYNC_FLUSH ends it. So
// a client that has read the chunk can decompress every event in it. Blocks may refer to earlier
// bytes: an event that was compressed after another ([GzipFrames]) may be sent only right after that
// other event. A client's member needs only one thing of its own, the checksum of its plain bytes.
// That is computed from the checksums of its parts.
//
// # Packed objects
//
// An object may be held without its managedFields, and those compressed: see [Packing]. All that it
// is asked for stays the same.
//
// # What is synthesised
//
// Seven things are not the upstream's own bytes. Each is spliced from them:
//
//   - ADDED events, for initial events and for objects that enter a selector;
//   - DELETED events, for objects that leave a selector: the previous version with the
//     resourceVersion of the change ([Object.Left]);
//   - bookmarks, in the form of the upstream's own ([BookmarkForm]);
//   - the first event of a watch in Tables, with the column definitions ([Columns]);
//   - list envelopes, in the form of the upstream's own ([ListForm]);
//   - objects without some of their fields, for lean clients and views ([Trim]);
//   - ERROR events, from a Status that the caller has encoded ([ErrorFrame]).
//
// # Bounds
//
// An event or a list item has at most [MaxEvent] bytes, which is what client-go accepts for an
// event. JSON nests at most 10,000 levels ([ErrTooDeep]). So do groups of protobuf, which
// Kubernetes does not use. Protobuf messages and CBOR maps are entered only as deep as a selectable
// field, or a path of a [Trim], leads. Everything else in them is skipped without recursion, in time
// linear in its bytes.
//
// JSON has U+FFFD in place of bytes that are not UTF-8. An object whose namespace, name or uid
// contains it is an error in JSON, because it may look like another object ([ErrReplaced]). In labels
// and selectable fields U+FFFD does no harm: no selector that is evaluated here has it.
//
// Every parser here returns an error for input that it does not understand, and has a fuzz target.
package framing
