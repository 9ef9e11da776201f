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
// # The file
//
//	options.go   the configuration, and what is wrong with it
//	path.go      paths of fields: spec.containers[*].image, data['tls.crt']
//	where.go     conditions on values: status.phase notin (Succeeded, Failed)
//	types.go     the fields of Kubernetes' messages in protobuf, from types.txt
//	shaper.go    a view's paths in one encoding
//	variants.go  the form of a resource in a view ([View.Variant]), made when it is first wanted
//
// # What a view changes
//
// A view leaves fields, objects and events out of the answers from caches, and out of small ones that
// pass through. Larger ones, watches that pass through, Tables and YAML are kube-apiserver's own, and
// whole. So a view saves bytes. It is not a boundary: a client may read the whole objects at the same
// server.
//
// A condition has one answer in every encoding: that of the value in JSON. What kube-apiserver does not
// write in JSON because it is empty is absent in protobuf too.
//
// The package knows names, paths and fields. It knows no verb, no user and no cache.
package view
