// Package request reads what a request asks for: verb, resource, namespace, selectors, resourceVersion, page and the
// representations that its client accepts. It recognises only what a cache can answer as kube-apiserver would. For
// everything else [Parse] reports false, and the request is passed through.
//
// It also has what all later steps of a request share: a context that says when the request begins to wait ([Waits]), and
// the end of a client whose request panics ([Caught]).
//
// It knows no cache, no user's rights and no upstream.
package request
