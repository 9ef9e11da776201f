// Package operate shows the proxy to those who run it: pages, verdicts, health and commands.
//
// It may know everything, and nothing but package proxy and the program's main know it. What it does
// never changes what a client is answered.
//
//	logging   the log, which nobody waits for
//	diagnose  watches as an operator sees them; top and explain
//	assess    would watchfan help a cluster? an estimate from kube-apiserver's metrics
//	preview   what would a view leave of a cluster's objects and events?
//	enrol     lets pods that exist use watchfan: names, and the keeper of what they need
//	plugin    kubectl watchfan: top and explain for the pods of a cluster
//	admin     the admin port: health, metrics, profiles, and the pages of diagnose
package operate
