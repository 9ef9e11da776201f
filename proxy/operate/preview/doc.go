// Package preview is the command watchfan view try: what does a view leave of a cluster's objects, bytes and
// events? It lists one resource, watches it for a while, and counts with and without the view.
//
//	command.go   the command, its flags, and the view of its file
//	counting.go  the list and the watch
//	text.go      what is printed
//
// It needs the right to list and watch the resource, and to list namespaces if the view selects them by
// labels. It asks kube-apiserver itself, so no watchfan need run. It keeps the objects that the view has in
// memory until it ends.
package preview
