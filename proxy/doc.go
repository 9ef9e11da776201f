// Package proxy is a Kubernetes API server to its clients and one client to kube-apiserver: it
// watches each resource once for any number of clients, and passes through the requests that it
// does not serve itself.
//
// # Rooms
//
// Package proxy itself connects the others. It has the server and its life, its options, and the
// limits on watches and memory. Each package below imports only those above it (rooms.sh). Beside
// them stand proxytest, which tests share, and the suites e2e, chaos, attack and statustest.
//
//	semaphore    a bound on how many goroutines do something at a time
//	account      the memory that clients make the proxy hold, each byte for one source
//	option       one table of settings: flags, file, help, bounds
//	exposition   /metrics
//	exchange     one request and its answer, for any protocol
//	files        what files contain, read again when they change
//	remember     answers remembered for a time, and calls that callers share
//	websocket    the WebSocket protocol: its handshake, its messages and its other frames
//	downstream   clients' connections, for any protocol, and the sinks of watches
//	apistatus    errors in kube-apiserver's form
//	view         parts of the path space that serve the API without some fields
//	request      a request's parameters, parsed once
//	fairness     fair turns at processors and at costly requests to kube-apiserver
//	auth         clients' identities and permissions
//	audit        the audit log
//	upstream     the client to kube-apiserver, and discovery of its APIs
//	seed         sibling replicas, whose caches fill those of a new one
//	passthrough  requests that are passed through to kube-apiserver
//	reflector    one resource followed upstream: list, watch, and their failures
//	lane         one resource served from a cache: first list, freshness, history
//	watchers     the register of open watches, and why one is slow
//	selfcheck    comparisons of lanes with kube-apiserver while they are served
//	registry     definitions of custom resources and APIServices, followed
//	diagnose     the pages under /debug; top and explain
//	assess       would watchfan help a cluster? an estimate from kube-apiserver's metrics
//	plugin       kubectl watchfan: top and explain for the pods of a cluster
//	cached       one read answered from a lane, or passed through
//	admin        the admin port: health, metrics, profiles, and the pages of diagnose
//	http1        HTTP/1.1: connections to exchanges and back, and watches over WebSockets
//	http2        HTTP/2 over TLS: the same, with up to a hundred exchanges on a connection at a time
//
// # The path of a request
//
//	http1, http2 ─▶ Server.Handle ─▶ request.Parse ─▶ auth.Identify ─▶ cached.Reads.Serve ─▶ lane.Lane
//	                                                     │ 401               │ not cacheable, not allowed,
//	                                                     ▼                   │ not proven, not known
//	                                                                         └─▶ passthrough.Forwarder
//
// Server.Handle takes the prefix of a view from the target first (view/views.go).
//
// A LIST: readHead (http1/head.go), Server.Handle (server.go), admission.begin (admission.go),
// Reads.Serve, prepare, resolve, acquire, serveLane, serveFrom (cached/reads.go), awaitLane
// (cached/waiting.go), serveList (cached/list.go), state (cached/consistency.go). respond
// (http1/response.go, http2/respond.go) writes the body. Over HTTP/2 a head is read by headDecoder
// (http2/head.go).
//
// An event: the lane's reflector reads it (reflector/watch.go, apply), framing scans it,
// fanout.Cache.Apply puts it into the snapshot, the history and the lists of the filters that it
// concerns, and a shard of fanout.Flusher writes it to the sink of each watch. The sink frames the
// same bytes for its protocol: chunks (downstream/sink.go), messages of a WebSocket
// (http1/messages.go) or DATA (http2/watch.go).
//
// # Words
//
//	lane            one resource in one representation, followed upstream and cached
//	representation  JSON, protobuf or CBOR; whole objects, their metadata, or Tables
//	view            a read-only part of the path space whose objects lack fields: /views/NAME
//	lean            without metadata.managedFields, as a client or the view lean asks
//	trimmed         without fields: lean, or what a view makes of an object
//	filter          the whole condition of a watch or list: namespace, name, selectors
//	group           the subscriptions that share a filter and a Variant: a form and a view (fanout)
//	subscription    one watch's place in a lane's events (fanout)
//	sink            the destination of a subscription's events: a connection, or a stream of HTTP/2
//	carrier         an HTTP/2 connection as fanout knows it: several sinks, flushed once a round
//	shard           a goroutine that writes to its share of the subscriptions
//	hash ranges     what a shardSelector selects by: hashes of uids or namespaces (KEP-5866)
//	index           objects by the value of a label or field that clients select by (fanout)
//	Table           kube-apiserver's rows for kubectl, with ages
//	proof           the evidence that a cache is as new as a request
//	scout           a short upstream watch for its bookmark, which may be a proof
//	backfill        fetching history from before a lane began
//	self-check      a comparison of a lane with kube-apiserver's list
//	quarantine      a resource is passed through because it cannot be cached
//	passed through  sent on to kube-apiserver in the client's name, each with a reason
//	review          the question to kube-apiserver whether a client may do something
//	seat            the right to use a processor for a cached read
//	window          how many bytes a client over HTTP/2 takes now, of a stream or in all
//	parked          a watch whose client does not read, or has closed its window
//	evicted         a watch that has ended because it was too far behind
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
//  5. A client reads and does only what kube-apiserver allows it. The proxy asks kube-apiserver in
//     the client's name, and again each minute while a watch is open. See Identities and Audit. An
//     API behind an aggregated server is not cached, because the server may show each client
//     different objects; see aggregation.
//
// All of this holds for each protocol. Three things differ from kube-apiserver. kube-apiserver ends
// every watch when its cache loses touch with etcd. A lane continues from its last resourceVersion,
// or lists once and shows the differences, and streams stay open. A watch ends when its client
// loses the right to it; in kube-apiserver it continues. The ages in the rows of a Table may be a
// second too small.
//
// # Herds
//
// Thousands of clients may come at once, at a lane that is not filled or at a replica that has just
// started. kube-apiserver then gets one list for each lane, and never a request for each client
// that waits. These are the places where a read passes through, and their bounds:
//
//	the lane is being filled                 lane.MostThrough lists and watches in all, and as many
//	                                         gets at a time; if attempts fail and bring nothing, as
//	                                         many of all kinds at a time (filling in package lane)
//	a wait has brought nothing: for a        lane.MostThrough of each resource at a time, fairly among
//	review, discovery, definitions, a lane,  users; then 429 (pass.go in package cached)
//	a proof, or history
//	a relist has skipped its history         16 of each lane at a time; then 410 (lane.PassSkipped)
//	kube-apiserver answers it as easily      a few of each resource at a time (pass.go in package
//	                                         cached); gets of a resource without a lane have no bound
//	a cache can't answer it                  no bound here. It is known from the request itself, or
//	                                         from an answer that is remembered, so it waits for
//	                                         nothing, and reaches kube-apiserver as it would without
//	                                         the proxy
//
// The proxy's own requests are shared or bounded as well: reviews (64 at a time), discovery (8),
// lists of lanes (reflector.ListsAtOnce), proofs and backfills (one for each lane at a time), and
// self-checks (one resource at a time).
//
// A read that waits holds no seat, and its connection no turn at the processors. A watch takes
// another turn behind its wait, because all that have waited for the same go on at the same instant.
// A waiting watch takes 10 KiB with its connection. The waiting reads are bounded for each lane and
// user, and --max-watches and --max-connections count them.
//
// Measured with the TestHerd of commit c792f78 on 2 cores, the clients included: 5,000 watches came at once to a replica
// that had just started, and a list that took 25.2 s. All were live 0.4 s after the list.
// kube-apiserver got one list, and four of the watches.
//
// # Restarts
//
// Clients continue at another replica without listing. After SIGTERM:
//
//		/readyz fails ──delay──▶ ports close ──drain──▶ what is left ends ──timeout──▶ what is left is cut
//		all is served            watches end            watches, logs, upgrades
//		                         one after another
//
//	  - During --shutdown-delay-duration everything is served, including new connections.
//	  - Then the ports and idle connections close. During --drain-duration watches end one after
//	    another, in random order, each behind all events for its client and a bookmark (package
//	    fanout, Endings). Then the connection closes, and the client dials another replica. Answers
//	    to other requests say Connection: close. A WebSocket ends with a CLOSE frame.
//	  - Then the remaining requests end at once, properly if everything before has been written. A
//	    client that does not read is cut off five seconds later, all others after --shutdown-timeout.
//
// Clients move to replicas that have been up for longer, and later watches use the same connection.
// To spread clients again, a connection ends at --max-connection-age, as in the drain. Watches that
// pass through continue to their own end. Over HTTP/2, such an end begins with GOAWAY: the client
// opens new streams elsewhere, and the connection closes after its last stream.
//
// # Goroutines
//
// All end before Server.Run returns, except one for an audit log whose file blocks, and one of the
// library that rotates its files.
//
//   - the server: one for each listener, the upstream check, the lanes' keeper, the self-checks, the
//     authorizer's reviews of open watches, the audit log, with an admin port one that samples the
//     history of the status page, and with a memory limit one that reads the use;
//   - two for each lane: its reflector and the watchdog of its upstream watch; while freshness is
//     being proven one more, one for each of up to 10 questions in a second until it is answered,
//     one for lists, and up to four for scouts; one for all lanes that builds their indexes, one
//     that follows CustomResourceDefinitions, and one that follows APIServices;
//   - one for each question to kube-apiserver that requests may share (remember.Coalescer), one for each
//     lookup of a token's owner, and one for each list of Tables that clients share, each for at most
//     10 s;
//   - fanout's: one for each shard, and one more for each while watches are inspected;
//   - the poller, for all watches. It starts a goroutine for a client that has left or sent
//     something; that of a WebSocket ends when it has read what came. Without epoll, each watch has
//     one, and another while its client does not read;
//   - fasthttp's and net/http's: one for each connection between two requests or being answered;
//   - for each HTTP/2 connection one that reads, one for each request until it has been answered,
//     and one while more is sent than the socket takes at once;
//   - one for each watch that waits for its lane;
//   - one for each line of the log about a cut (package account), of which there is one in 10 s;
//   - two for each passed-through stream, one of which waits for the client to leave, and one more
//     for a watch that returns to its lane. A stream whose request has a body has one, which looks
//     each second whether the client has left.
//
// A panic in the work for one client is logged and counted. It ends only that client's connection;
// see exchange.Guard.
package proxy
