// Package wire is the proxy's front: sockets, bytes and protocols. What arrives becomes an
// exchange.Exchange, and what is answered becomes bytes.
//
// It never knows a user, a resource or a cache. A watch over WebSocket that is cut, a connection that
// hangs, or a head that is refused begins to be understood here.
//
//	exchange    one request and its answer, for any protocol
//	websocket   the WebSocket protocol: its handshake, its messages and its other frames
//	downstream  clients' connections, for any protocol, and the sinks of watches
//	http1       HTTP/1.1: connections to exchanges and back, and watches over WebSockets
//	http2       HTTP/2 over TLS: the same, with up to a hundred exchanges on a connection at a time
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
package wire
