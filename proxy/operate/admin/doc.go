// Package admin serves the admin port: health, metrics, profiles, and the pages of package
// diagnose. Its clients are few, and it is served by net/http.
//
//	port.go            the server: its limits, its start and its end
//	connections.go     which connection makes way for a new one
//	pages.go           which path shows what, and to which clients
//	health.go          /livez, /readyz
//	upstream_check.go  the check of kube-apiserver that /readyz shows
//
// It knows nothing of the API's requests. What /readyz checks, what the pages show, and which
// requests come from this host is given to it.
//
// # Who may ask
//
// The port has no authentication, and on most clusters every pod reaches it. Nobody can take the
// place of the kubelet's probes; see type connections.
//
// On a loopback address it answers clients on this host, and no
// other web pages that a browser there shows. On any other address it answers everybody, with two
// exceptions. Profiles are for clients on this host always, because they hold objects and tokens.
// Watches are for clients on this host unless --profiling is given. A service mesh's proxy runs on
// this host, and its clients do not: what it forwards comes from another loopback address, or with a
// header of a proxy.
package admin
