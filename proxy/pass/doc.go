// Package pass is the way to kube-apiserver: the client to it, and the requests that it answers
// itself.
//
// It never knows a cache. An outage upstream, and a request whose answer is kube-apiserver's own,
// begin to be understood here.
//
//	upstream     the client to kube-apiserver, and discovery of its APIs
//	passthrough  requests that are passed through to kube-apiserver
//	fallback     a watchfan without caches, which answers while the others cannot
package pass
