// Package registry follows the resources that say how others are served: CustomResourceDefinitions,
// which say how objects are stored and selected, APIServices, by which another server answers for a
// group, and namespaces, by whose labels views select, and which name views for their clients.
//
//	follower.go      how each is followed: by a lane like any other
//	crd_watcher.go   what a definition means for the lanes of its resource
//	aggregation.go   who answers for an API version
//	namespaces.go    which namespaces there are, with their labels
//
// A change comes with our watch of the resource, one event after kube-apiserver knows it. If the watch
// hangs, it comes after 10 s for a dead connection, and 150 s for a live one (see package upstream, and
// watchdog in package reflector).
//
// When one of the first two changes, it stops the lanes that the change concerns. The lanes' side of that is
// in package lane (apis.go): which definition each custom resource has, and which versions another
// server answers for.
package registry
