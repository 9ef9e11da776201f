// Package fairness shares a few seats fairly among users, as kube-apiserver's API Priority and
// Fairness does: for the processors' time of cached reads, and for requests that cost
// kube-apiserver much.
//
// It knows identities. It knows neither requests nor connections.
//
// # Fairness
//
// What a cached read costs in proportion to a collection is done in one of a few seats (GOMAXPROCS,
// two at least): searching with a selector, collecting items, compressing them for the first time,
// reconstructing a past state, sealing a long body for TLS. One user has all seats but one at most,
// and users who want more take turns of 2 ms, so that a short list is delayed by one turn of each
// other user, however long their lists are. Nobody holds a seat while a client is written to. A
// user who has 300 reads waiting, or one for 15 s, is told to come again (429). A seat that is free
// costs a read 0.3 µs. See fairness.
//
// Measured with 5,000 ConfigMaps of 22 MB in all, on 2 cores that clients and kube-apiserver used
// too: a list of 10 ConfigMaps over TLS, alone, and while another user lists all on 20 connections;
// median and 99th percentile.
//
//	                               alone              beside plain lists    beside gzip lists of different selectors
//	without seats                  0.4 ms, 5 ms       0.7 ms, 63 ms         15 ms, 477 ms
//	with seats                     0.4 ms, 4 ms       0.7 ms, 12 ms         0.1 ms, 7 ms
//	kube-apiserver                 1.0 ms, 4 ms       3.1 ms, 113 ms        242 ms, 519 ms
package fairness
