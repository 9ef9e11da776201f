// Package load makes the load of the benchmarks: the clients of a server, and the writes that they
// see. It knows addresses and objects, and nothing of the servers behind them, of peers, or of reports.
//
//	endpoint  collection  pods                    where, and which objects
//	writer  ledger                                the writes and their numbers
//	fleet  watch  reader  scanner  inflate        the watchers and how they read
//	streams  h2conn  sleepers                     watchers over HTTP/2, and those that do not read
//	ask  form  resync_client  storm_clients       clients that ask again and again, resync, or come all at once
//
// # Goroutines
//
//   - one for each reader, which reads thousands of watchers with its own epoll (reader.go);
//   - one for each worker of the writer, and those of its net/http connection (writer.go);
//   - one for each client that asks (ask.go), and for each of a storm, in a process of its own
//     (storm_clients.go).
package load
