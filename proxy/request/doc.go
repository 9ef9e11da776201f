// Package request reads what a request asks for: verb, resource, namespace, selectors,
// resourceVersion, page and the representations that its client accepts. It recognises only what a
// cache can answer as kube-apiserver would. For everything else [Parse] reports false, and the
// request is passed through.
//
// It also has what all later steps of a request share: a context that says when the request begins
// to wait ([Waits]), and the end of a client whose request panics ([Caught]).
//
// It knows no cache, no user's rights and no upstream.
//
// # Representations
//
// Clients ask for JSON, protobuf or CBOR, for whole objects or their metadata only. Each form of a
// resource has a lane of its own, filled with the bytes that kube-apiserver itself sends in that
// form, because to make one form of another takes the resource's Go types. Tables, YAML and
// indented JSON are made for people's eyes and pass through. Which encodings kube-apiserver serves
// of a resource is asked once; see supportedEncodings.
//
// Watches are sent as gzip to clients that accept it, compressed once for all of them, as one gzip
// member; see package fanout, Compression.
package request
