// Package fallback is a watchfan without caches that answers while the others cannot: everything
// passes through to kube-apiserver, in the client's name. resourceVersions are the cluster's own, so
// clients resume their watches here, and later at the others again, and list neither time.
//
//	options.go    what it falls back for, and how fast watches may start
//	fallback.go   its life: it looks whether the others are ready, and then sends its clients home
//	slice.go      its place among the endpoints of the others' Service
//	takeover.go   its place at the port of another watchfan on this host
//
// It knows the upstream, and of connections only how many there are. It knows no request and no
// cache.
//
// # How clients come
//
// Behind a Service (--fallback-for=NAMESPACE/NAME), a fall-back replica publishes itself in an
// EndpointSlice of its own, as an endpoint that is serving and terminating, and not ready. kube-proxy
// sends to such endpoints only while a Service has no ready one (CategorizeEndpoints in
// k8s.io/kubernetes/pkg/proxy/topology.go, KEP-1669). Cilium does the same in place of kube-proxy: it
// takes the terminating backends of a Service when none is active. So no controller has to notice that
// the others are gone, and nothing has to be written at that time, when kube-apiserver may be busy.
// The EndpointSlice controller leaves the slice alone, because another name manages it. The slice
// belongs to the replica's Pod, so it goes with it. A replica that stops empties its slice first. The
// slice of one that dies remains until its Pod is deleted or its successor has taken it over: until
// then a share of new connections fails, as with any Service whose endpoint has just died.
//
// Beside one watchfan on the same host (--fallback-for=http://127.0.0.1:8002/readyz), it listens on
// that one's own port when nobody else does, which it tries ten times a second. Both listen with
// SO_REUSEPORT, so the other can start again at any time. No client and no load balancer has to know a
// second address. A port of its own would need something in front that chooses, and that could fail
// as well.
//
// # How they go home
//
// While it has clients, the fall-back asks each second whether a ready endpoint, or the other
// watchfan's /readyz, is there again. settle later, when kube-proxy knows it too, it dismisses a 60th
// of its connections each second, and 50 at least (downstream.Connections). HTTP/2 connections get
// GOAWAY, and HTTP/1.1 answers say Connection: close. Watches end some seconds later where their
// clients resume without a loss (package passthrough), and the clients dial again. Writes, exec, logs
// and port-forwards go on to their end. Clients that still come are served and dismissed in turn.
//
// # What kube-apiserver gets
//
// The watches of all clients come at once, with their own resourceVersions. They are started at
// --fallback-watch-rate. Their sources (package account) take turns, so that nobody who asks again and
// again keeps others waiting. Watches that would wait for longer than mostWait get 429, after which
// client-go tries again by itself, and does not list. Nothing else is
// paced: clients that resume do not list, and kube-apiserver's own priority and fairness bounds the
// others. Its 429 passes through, with its Retry-After.
package fallback
