// Command devcluster runs a real etcd and a real kube-apiserver on loopback,
// for trying, testing and benchmarking watchfan. There is no kubelet, no
// scheduler and no controller manager: objects stay as clients leave them.
// With --service-accounts, pods are admitted with a token volume ([keepAccounts]).
//
//	devcluster [up] ──┬── devcluster etcd             127.0.0.1, no TLS
//	                  └── devcluster kube-apiserver   127.0.0.1, TLS, RBAC
//
// # Processes
//
// Both servers are linked into this one binary, which starts itself twice.
// As processes of their own they have their own CPU time and memory in /proc,
// and a test can stop or kill one of them alone. A child that dies is started
// again (see [Cluster.Run]); a child whose parent dies is killed by the kernel
// (see [spawn]), so nothing is ever left running.
//
// # Goroutines
//
// The one that calls [Up] owns the children and does all that is done to them.
// Beside it: one that starts children ([spawnLoop]), one per child that waits
// for its end, one that accepts on the control socket and one per connection,
// and with --service-accounts the one that keeps accounts and its informer's.
//
// # State
//
// Everything lives in one directory (see [Dir] for its files): data, ports,
// certificates, keys and tokens. Running devcluster on it again continues the
// same cluster at the same address. One devcluster at a time can use it.
//
// # Limits
//
// Linux only. etcd listens without TLS or authentication, on loopback: any
// user of the machine can read and write it. Keep no secrets in it.
package main
