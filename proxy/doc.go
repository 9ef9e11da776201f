// Package proxy is a Kubernetes API server to its clients and one client to kube-apiserver: it watches each resource
// once for any number of clients, and passes through the requests that it does not serve itself.
//
// # Wings
//
// Package proxy itself has the server, its life and its options. The others stand in wings. A wing
// imports only those above it, and a package also those above it in its wing (rooms.sh):
//
//	base     settings, metrics, files, bounds     machine, semaphore, account, option, exposition, files
//	wire     sockets, bytes and protocols         exchange, websocket, downstream, http1, http2
//	gate     who asks for what, and may they now  remember, apistatus, view, request, fairness, auth,
//	                                              audit, admission, consumers
//	pass     the way to kube-apiserver            upstream, passthrough, fallback
//	store    one resource, followed and served    seed, reflector, fresh, lane, watchers, selfcheck, registry, observe,
//	                                              sharedlist, cached
//	operate  what those who run it see            logging, diagnose, assess, preview, enrol, plugin, admin
//
// A wing's documentation says what it knows and never knows. suites has the tests of the whole.
//
// # The path of a request
//
//	http1, http2 ─▶ Server.Handle ─▶ request.Parse ─▶ auth.Identify ─▶ cached.Reads.Serve ─▶ lane.Lane
//	                                                     │ 401               │ not cacheable, not allowed,
//	                                                     ▼                   │ not proven, not known
//	                                                                         └─▶ passthrough.Forwarder
//
// Server.Handle takes the prefix of a view from the target first (gate/view). These are the ways:
//
//   - A LIST: readHead (wire/http1/head.go, wire/http2/head.go), Server.Handle (handle.go),
//     Admission.Begin (gate/admission), Reads.Serve, prepare, serveLane, serveFrom (store/cached/reads.go),
//     resolve, acquire (read.go), awaitLane (waiting.go), serveList (list.go), state (consistency.go).
//     respond (wire/http1/response.go, wire/http2/respond.go) writes the body.
//   - An event: the lane's reflector reads it (store/reflector/watch.go, apply), framing scans it,
//     fanout.Cache.Apply puts it into the snapshot, the history and the lists of the filters that it
//     concerns, and a shard of fanout.Flusher, or for a few watches the reflector itself, writes it
//     as a chunk to the sink of each watch, which sends that (wire/downstream/sink.go), or its payload
//     as a message of a WebSocket (wire/http1/messages.go) or as DATA (wire/http2/watch.go).
//   - A refusal: a check of handle.go returns a Status, and a step of Reads.Serve an Outcome.
//     Server.end alone writes it and records it in the audit log. What a protocol itself rejects, it
//     answers with apistatus.Refuse.
//   - A request that passes through: its Outcome has the reason, and Server.end gives it to
//     passthrough.Forwarder.Serve. When a read may pass is one table (store/cached/pass.go).
//
// # Words
//
//	lane            one resource in one representation, followed upstream and cached
//	representation  JSON, protobuf or CBOR; whole objects, their metadata, or Tables
//	view            a read-only part of the path space with fewer objects, fields and, if quiet, events
//	lean            without metadata.managedFields, as a client or the view lean asks
//	trimmed         without fields: lean, or what a view makes of an object
//	filter          the whole condition of a watch or list: namespace, name, selectors
//	group           the subscriptions that share a filter and a Variant: a form and a view (fanout)
//	subscription    one watch's place in a lane's events (fanout)
//	sink            the destination of a subscription's events: a connection, or a stream of HTTP/2
//	carrier         an HTTP/2 connection as fanout knows it: several sinks, flushed once a round
//	shard           a goroutine that writes to its share of the subscriptions
//	proof           the evidence that a cache is as new as a request
//	scout           a short upstream watch whose bookmark may be a proof
//	backfill        fetching history from before a lane began
//	self-check      a comparison of a lane with kube-apiserver's list
//	quarantine      a resource is passed through because it cannot be cached
//	mistrusted      a resource is passed through because its cache was wrong and could not be repaired
//	passed through  sent on to kube-apiserver in the client's name, each with a reason
//	observed        passed through, and compared with what a cache would have answered
//	review          the question to kube-apiserver whether a client may do something
//	seat            the right to use a processor for a cached read
//	window          how many bytes a client over HTTP/2 takes now, of a stream or in all
//	parked          a watch whose client does not read, or has closed its window
//	evicted         a watch that has ended because it was too far behind
//	fall-back       a watchfan without caches, which answers while the others cannot
//	dismissed       a connection whose client is told to use another, as a fall-back sends clients home
//	consumer        a user and a program that acts in its name, as the user agent says
//	herd            clients that come at once and wait for the same
//
// # What a client may rely on
//
//  1. An event is the bytes that kube-apiserver sent, or is spliced from them to the same result as
//     kube-apiserver's.
//  2. After its initial events a watch's resourceVersions never decrease, no event of the watch is
//     missing, and none comes twice. A watch that can't continue in this way ends.
//  3. A bookmark is sent behind every event up to its resourceVersion; only deletions that a list
//     has revealed may carry a resourceVersion that the client already knows.
//  4. A list, a get, and a watch that begins with initial events, show without a resourceVersion a
//     state at least as new as any write that was acknowledged before the request; see Freshness.
//  5. A client reads and does only what kube-apiserver allows it: it is asked in the client's name,
//     and again each minute while a watch is open. An API behind an aggregated server is not cached,
//     because the server may show each client different objects.
//
// All of this holds for each protocol. Four things differ from kube-apiserver. It ends every watch when its cache loses
// touch with etcd; a lane continues, or lists once and shows the differences. A watch ends when its client loses the right
// to it. The ages in a Table may be a second too small. A streaming list that would never end is refused (passthrough).
//
// # Goroutines
//
// All end before Server.Run returns, but for one of an audit log whose file blocks, and one of its library.
//
//   - the server: one for each listener, the upstream check, the lanes' keeper, the self-checks, the
//     authorizer's reviews of open watches, the audit log, the renewal of a self-signed certificate,
//     the history of the status page, the attribution of processor time; with a memory limit one that
//     reads the use, and with a file of options one that reads it again; one for each answer that is
//     observed, until it is compared;
//   - one for each lane: its reflector; while freshness is being proven one for each question, one for
//     lists, and up to four for scouts; for all lanes, one that builds their indexes, one that follows
//     CustomResourceDefinitions, one that follows APIServices, and one that follows namespaces;
//   - one for each question to kube-apiserver that requests may share (remember.Coalescer), each
//     lookup of a token's owner, and each list of Tables that clients share, for at most 10 s;
//   - fanout's: one for each shard, and one more for each while watches are inspected;
//   - the poller, for all watches. It starts a goroutine for a client that has left or sent
//     something; that of a WebSocket ends when it has read what came. Without epoll, each watch has
//     one, and another while its client does not read;
//   - fasthttp's and net/http's: one for each connection between two requests or being answered;
//   - for each HTTP/2 connection one that reads, one for each request until it has been answered,
//     and one while more is due than is sealed at a time;
//   - of a fall-back: one that sends clients home, and one that keeps its EndpointSlices;
//   - one for each watch that waits for its lane, and one in 10 s for a log line about a cut;
//   - two for each passed-through stream (one with a body), and one more for a watch that goes back to
//     its lane or home from a fall-back, or whose response does not begin soon.
//
// A panic in the work for one client is logged, counted, and ends only its connection (exchange.Guard).
package proxy
