// Package proxy is a Kubernetes API server to its clients and one client to kube-apiserver: it
// watches each resource once, however many clients watch it, and passes through whatever it does
// not serve itself.
//
// # Rooms
//
// proxy itself puts the others together: the server and its life, the options, and the serving of
// one cached read. Each package below imports only those in front of it (rooms.sh).
//
//	semaphore    a bound on how many goroutines do something at a time
//	option       one table of settings: flags, file, help, bounds
//	exposition   /metrics
//	exchange     one request and its answer, whatever the protocol
//	apistatus    errors in kube-apiserver's words
//	request      what a request asks for; read once
//	auth         who is asking, and may they
//	fairness     turns, for processors and for what costs kube-apiserver much
//	audit        the audit log
//	upstream     the client to kube-apiserver, what APIs there are
//	downstream   clients' connections, whatever their protocol, and the sinks of watches
//	passthrough  what is not served here
//	reflector    one resource followed upstream: list, watch, what breaks them
//	lane         one resource served from a cache: first list, freshness, history
//	registry     definitions of custom resources and APIServices, followed
//	diagnose     watches as an operator sees them; top and explain
//	admin        the admin port: health, metrics, profiles, and the pages of diagnose
//	http1        HTTP/1.1: connections to exchanges and back; only proxy itself knows it
//
// # The way of a request
//
//	http1 ─▶ Server.handle ─▶ request.Parse ─▶ auth.Identify ─▶ cachedReads.serve ─▶ lane.Lane ─▶ fanout.Cache
//	                                              │ 401               │ not cacheable, not allowed, not proven, not known
//	                                              ▼                   └─▶ passthrough.Forwarder ─▶ kube-apiserver
//
// A LIST: readHead (http1/head.go), Server.handle (server.go), admission.begin (admission.go),
// cachedReads.serve, serveCached, resolve, acquire, serveFrom (cached.go), awaitLane (waiting.go),
// serveList (list.go), state (consistency.go), and its body leaves by respond (http1/response.go).
//
// An event: the lane's reflector reads it (reflector/watch.go, apply), framing scans it,
// fanout.Cache.Apply puts it into the snapshot, the history and the lists of the filters that it
// concerns, and a shard of fanout.Flusher writes it to the sink of each watch (downstream/sink.go).
//
// A request is served from a cache only if it is positively recognised as a get, list or watch that
// a cache can answer exactly as kube-apiserver would. In any doubt it is passed through, and
// kube-apiserver chooses the words.
//
// # Words
//
//	lane          one resource in one representation, followed upstream and cached
//	representation  JSON, protobuf or CBOR; whole objects or their metadata
//	filter        the whole condition of a watch or list: namespace, name, selectors
//	group         the subscriptions that share a filter (fanout)
//	subscription  one watch's place in a lane's events (fanout)
//	sink          what a subscription is written to: a connection
//	shard         a goroutine that writes to its share of the subscriptions
//	proof         the evidence that a cache is as new as a request
//	backfill      fetching history from before a lane began
//	quarantine    a resource is passed through because it cannot be cached
//	review        the question to kube-apiserver whether a client may do something
//	seat          the right to use a processor for a cached read
//	parked        a watch whose client does not read
//	evicted       a watch that has ended because it was too far behind
//
// # Before a yes
//
// Until kube-apiserver has said that the client may read, nothing that is cached is looked at, no
// lane is looked at or started, and nothing is asked in the proxy's own name but a review that only
// the proxy can ask. Otherwise a stranger could have us work, ask and list, and learn from the time
// that it takes what it may not see. Two kinds of reads are passed through without a review,
// because that would be a second request where one will do. Neither is chosen by what is cached:
//
//   - A get without a resourceVersion, if only a few of that resource are under way, or if a client
//     that may read has just found that the resource has no lane.
//   - A list that was small within the last minute, when the same client sent it and might read it.
//
// What an allowed client has us ask is bounded as well. kube-apiserver's list of groups, once every
// two seconds, answers for all groups that do not exist (servedVersions), and a few requests for
// discovery and for supported encodings are under way at a time.
//
// # What a client may rely on
//
//  1. An event is the bytes that kube-apiserver sent, or is spliced from them as kube-apiserver
//     would have.
//  2. After its initial events a watch's resourceVersions never decrease, no event of the watch is
//     missing, and none comes twice. A watch that can't go on like this ends.
//  3. A bookmark is sent behind every event up to its resourceVersion; only deletions that a list
//     has shown may come with one that is known already.
//  4. A list, a get, and a watch that begins with initial events, show without a resourceVersion a
//     state at least as new as any write that was acknowledged before the request; see Freshness.
//  5. Nothing is shown to a client that kube-apiserver would not let read it, and nothing is done
//     for a client that it would not let do it: kube-apiserver is asked in that client's name, and
//     asked again each minute while a watch is open. See Identities and Audit. An API that may show
//     each client something else, because an aggregated server answers for it, is not cached; see
//     aggregation.
//
// Unlike kube-apiserver, which ends every watch when its cache loses touch with etcd, a lane whose
// upstream watch breaks goes on from its last resourceVersion, or lists once and shows its clients
// the differences; their streams stay open. An object may then have had versions that no client
// saw, but its latest is always shown. And a watch of a client whose permission is gone ends, where
// kube-apiserver's would go on.
//
// # One watch's life
//
// The first client of a resource in a representation starts its lane. A lane stops when it has had
// no client for --idle-timeout. A watch becomes a subscription of the lane's cache and a stream of its
// exchange. The flusher's shards write shared frames to the stream's sink, without waiting. It ends
// for one of the reasons in package fanout. If all that was promised has been written, the response
// ends properly, and the connection can carry another request. Otherwise it is broken off.
//
// A client may resume from a resourceVersion from before the lane began. One upstream watch, shared
// by all clients that wait, fetches the missing history. What a selector's client gets of it can
// depend on the objects' earlier versions. The earlier versions are fetched with an exact list.
//
// While a lane is being filled for the first time its clients wait, and a handful of them pass
// through; filling says how many, and when clients get 429. Passing through is bounded there
// because a resource that takes long to list is the one that kube-apiserver can least list for
// everybody. It is not bounded where waiting brings nothing: kube-apiserver does not let the proxy
// list the resource, an object can't be cached, or memory is full. What can't be proved fresh, or
// needs a past that is not known, passes through without a bound, too.
//
// # Restarts
//
// Clients are to go on elsewhere without listing. After SIGTERM:
//
//		/readyz fails ──delay──▶ ports and idle connections close ──drain──▶ what is left ends ──timeout──▶ what is left is cut
//		all is served            watches end one after another               last chunks: watches, logs, upgrades
//
//	  - During --shutdown-delay-duration everything goes on, new connections too, until nobody sends any more.
//	  - During --drain-duration watches end evenly spread, in random order, each whole (package fanout, Endings): behind all that there is for its
//	    client and behind a bookmark. Then its connection is closed, so that the client dials again and finds another replica. Answers to other
//	    requests say Connection: close. Logs, upgrades and watches that pass through last until the drain is over.
//	  - Then what is left ends at once, properly where everything before has been written. A client that does not read is cut off five seconds later, and
//	    whatever is left after --shutdown-timeout.
//
// A client comes back to a replica that has been up for longer, and its next watch goes over the
// same connection. So that clients spread again, a connection ends at --max-connection-age, as in
// the drain; watches that pass through go on to their own end.
//
// # Goroutines
//
// All end before Server.Run returns.
//
//   - Run: one for each listener, the upstream check, the lanes' keeper, the authorizer's
//     re-checks, and with a memory limit one that looks at memory each second;
//   - two for each lane, its reflector and the watchdog of its upstream watch; one more while
//     freshness is being proven;
//   - one for the audit log, which may outlast Run if its file takes no more; the library that
//     rotates files has another, for good;
//   - one for each question to kube-apiserver that requests may share (auth.Coalescer), and one for
//     each token whose owner is asked for, each for at most 10 s;
//   - one while custom resources have lanes, which follows their definitions;
//   - one while there are lanes, which follows the APIServices; see aggregation;
//   - fanout's: one for each shard, and while watches are looked at one more for each;
//   - the poller, for all watches: it starts a goroutine for one whose client has left, or has sent
//     something, and goes on writing to one whose client reads again. Where there is no epoll, each
//     watch has a goroutine that waits for its client to leave, and another while the client does
//     not read;
//   - fasthttp's: one for each connection between two requests or being answered;
//   - net/http's: one for each connection to the admin port, and another while a request is answered;
//   - two for each passed-through stream, one of which waits for the client to leave.
//
// A panic in what is done for one client ends that client's connection, is logged and counted; see
// caught for where, and where not.
package proxy
