// Package view knows the views of the API: parts of the path space that serve the whole API below
// them, read-only, without some fields of the objects. A view is for clients that cannot change
// their Accept header. Such a client has the view's path in its kubeconfig:
//
//	server: https://watchfan.example.com/views/lean
//
// [Views.Enter] takes the prefix from a request's target, before anything else reads the target. So
// all that follows serves and authorizes the same request as without a view. Only the audit log has
// the target as the client sent it.
//
// # Paths
//
// Everything below /views belongs to this proxy and is never sent to kube-apiserver. A path that is
// not exactly /views/NAME and an ordinary path below it gets 404: with an unknown name, with
// another view below the view, with dots, with empty segments, or with escapes in the prefix. This
// holds for every spelling that leads to /views after escapes or dots have been resolved.
//
// # What a view changes
//
// A view leaves fields out of the answers from caches, and out of small ones that pass through.
// Larger ones, watches that pass through, Tables and YAML are kube-apiserver's own, and whole. So a
// view saves bytes. It is not a boundary: a client may read the whole objects at the same server.
//
// The package knows names, paths and fields. It knows no verb, no user and no cache.
package view
