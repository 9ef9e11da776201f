// Package proxytest is what tests of watchfan share. Only tests import it.
//
// # A scripted kube-apiserver
//
// [Server] causes the faults that no real kube-apiserver causes on demand. It keeps a few
// collections in memory under one resourceVersion and serves them as kube-apiserver does:
// discovery, consistent and paginated lists, watches from a resourceVersion, watch-lists with their
// end bookmark, the bookmark of a short watch, access reviews. Its objects have a string of data in JSON; those
// of a collection that [Server.AddTyped] adds are of a type of k8s.io/api, in JSON and protobuf. A test injects
// a fault in one of two ways:
//
//	up.On(proxytest.List, 1, func(c *proxytest.Call) { c.Fail(503, "", "busy", 2) })   // the next list
//	up.Stream(proxytest.Watch).Send("garbage\n")                                       // an open watch
//
// The server notes every request by its [Kind], so that a test can prove that its fault happened
// and count what followed. [FakeUpstream] is smaller: a func answers each request. [OwnersUpstream]
// knows the owners of tokens.
//
// Package bubble runs a whole proxy in front of a [Server] in virtual time. Most tests of what the
// proxy does, as opposed to how it speaks to a socket, begin there.
//
// # Clients
//
// [Open] starts a watch and returns a [Watcher], which keeps every event with its
// bytes. [EventReader] divides any watch into events, [Uncompressed] reads gzip as strict
// decoders do, and [HTTPClient] and [HTTP2Client] change nothing on the way. [OpenWebSocket] opens
// a watch over a WebSocket and sees each of its bytes. [ReadRequest] makes a request without a
// connection. [FromCache] tells watchfan's own answers from those of kube-apiserver.
//
// # Processes
//
// [RunCluster] starts a real etcd and kube-apiserver, [StartWatchfan] the built watchfan,
// [Informers] client-go's informers and [StartProcess] any program. [Binary] finds the programs
// that make builds. A [Process] that ends before it is ready, or does not end when it is told to,
// is an error that shows what it printed. On Linux no process outlives the tests, even if the tests
// are killed.
//
// # The network
//
// [Relay] is a TCP relay that delays, holds and loses bytes, resets connections, and leaves one end
// of a connection without the other.
//
// # Certificates
//
// [Authority] signs certificates for clients and for other authorities.
//
// # The same answer each time
//
// Package steady waits for conditions, draws random numbers with a known seed, and finds goroutines
// that are left. The programs testlint and stress find tests that depend on the machine: in their
// source, and by running them beside busy loops.
//
// # Attacks
//
// [Attacks] is a table of malformed requests over HTTP/1.1, each with the answers of watchfan and
// of kube-apiserver. [HTTP2Attacks] is the same for frames of HTTP/2, which [HTTP2Wire] sends.
package proxytest
