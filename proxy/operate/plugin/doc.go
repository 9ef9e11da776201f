// Package plugin is the command kubectl watchfan: watchfan top and watchfan explain for the pods of a
// cluster, and the enrolment of workloads. kubectl runs the program kubectl-watchfan, which is watchfan
// under another name.
//
//	command.go  the command line, and which pods a command asks
//	pods.go     the pods, found by label at kube-apiserver
//	enrol.go    enrol and leave: the command lines of package enrol
//	enrolled.go which workloads are enrolled, beside what the pods of watchfan serve
//	forward.go  a local port for the admin port of a pod, through kube-apiserver
//	bounded.go  a client for client-go that reads no endless answer and follows no redirection
//
// What a cluster answers is bounded, and safe for a terminal and a shell. A kubeconfig may name programs to
// run, as for kubectl: whose it is must be trusted.
//
// top and explain need a kubeconfig whose user may list pods and create pods/portforward. The admin
// port sees the request come from its own pod, so it answers as on loopback. The local port is open on
// 127.0.0.1 while the command runs.
//
// It knows package diagnose's commands, and the watches and caches that its pages list.
package plugin
