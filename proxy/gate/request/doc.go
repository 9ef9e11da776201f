// Package request parses requests: verb, resource, namespace, selectors, resourceVersion, page and
// the representations that the client accepts. It recognises only requests that a cache can answer
// as kube-apiserver would. For all others [Parse] reports false, and they are passed through.
//
// The package knows no cache, no user's rights and no upstream.
//
// # Representations
//
// Clients ask for JSON, protobuf or CBOR, and for whole objects or their metadata only. Each form
// of a resource has a lane of its own. The lane contains the bytes that kube-apiserver itself sends
// in that form: a conversion between forms would need the resource's Go types. Lists of Tables,
// YAML and indented JSON are for human readers and pass through. A watch in Tables, as kubectl's,
// has a lane that keeps events only; see fanout.NewEventsOnly. kube-apiserver is asked once which
// encodings it serves for a resource; see upstream.SupportedEncodings.
//
// A watch may be asked for over a WebSocket. The request is the same, and so is its lane. An Origin
// of the server's own host, and an upgrade to h2c, change nothing in the answer, so such requests
// are recognised too.
//
// A request that is passed through says why: see [Reason]. In a view only reads are served; see
// [Info.OnlyReads].
//
// # shardSelector
//
// A list or watch may have a shardSelector (KEP-5866): the hash of each object's uid or namespace
// is then in one of some ranges. kube-apiserver parses it as CEL. Here only calls of shardRange
// with || between them are understood, in any spacing. A cache answers them even if kube-apiserver
// ignores the parameter. So a selector that is not understood does not make a request uncacheable.
// It comes with an error, and package cached decides. See [ShardSelector].
//
// Watches are sent as gzip to clients that accept it. They are compressed once for all clients, as
// one gzip member; see package fanout, Compression.
package request
