// Package plugin is the command kubectl watchfan: watchfan top and watchfan explain for the pods of a
// cluster. kubectl runs the program kubectl-watchfan, which is watchfan under another name.
//
//	command.go  the command line, and which pods a command asks
//	pods.go     the pods, found by label at kube-apiserver
//	forward.go  a local port for the admin port of a pod, through kube-apiserver
//
// It needs a kubeconfig whose user may list pods and create pods/portforward. The admin port sees the
// request come from its own pod, so it answers as on loopback. The local port is open on 127.0.0.1
// while the command runs.
//
// It knows package diagnose's commands and no page of the admin port.
package plugin
