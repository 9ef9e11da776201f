// Package fairness shares a few seats fairly among users, as kube-apiserver's API Priority and
// Fairness does. Cached reads need a seat for processor time. Passed-through requests with long
// selectors, and reviews of clients' rights, need one because they cost kube-apiserver much.
//
// It knows who is one user ([Flow]). It knows neither identities nor requests.
//
// # Cached reads
//
// The work of a cached read that grows with the collection is done in a seat: searching with a
// selector, collecting a list's items, compressing them for the first time, reconstructing a past
// state, and sealing a long body for TLS. Writes, passed-through requests, gets of single objects,
// and events need no seat.
//
// There are GOMAXPROCS seats, and two at least. One user has at most all seats but one. Users that
// want more take turns of 2 ms. So one turn of each other user delays a short list, however long
// their lists are. Nobody holds a seat while a client is written to. At most seven reads of a user
// wait in the middle of their work, because they keep memory. A user with 300 waiting reads, or with
// one that has waited for 15 s, is told to try again (429). A free seat costs a read 0.3 µs.
//
// Measured with 5,000 ConfigMaps of 22 MB in all, on 2 cores that clients and kube-apiserver used
// too: a list of 10 ConfigMaps over TLS, alone, and while another user lists all on 20 connections;
// median and 99th percentile.
//
//	                alone         beside plain lists  beside gzip lists of different selectors
//	without seats   0.4 ms, 5 ms  0.7 ms, 63 ms       15 ms, 477 ms
//	with seats      0.4 ms, 4 ms  0.7 ms, 12 ms       0.1 ms, 7 ms
//	kube-apiserver  1.0 ms, 4 ms  3.1 ms, 113 ms      242 ms, 519 ms
package fairness
