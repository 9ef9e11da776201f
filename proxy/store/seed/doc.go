// Package seed asks sibling replicas for what they have cached, so that a replica that starts costs
// kube-apiserver no list. The reflector of a lane that is filled for the first time asks here. It
// reads a sibling's objects, and goes on watching kube-apiserver from their resourceVersion. A file of
// what the replica itself had before it was started again is as good as a sibling.
//
//	options.go    --seed-from and who is trusted
//	siblings.go   the siblings' addresses, their certificates, and the credential
//	search.go     going from sibling to sibling until one has filled a lane
//	identity.go   what a seed is of: cluster, build of kube-apiserver, version of this protocol
//	failure.go    why there was no seed: counted, and logged once with what to do
//	disk.go       the files of --cache-dir
//
// It knows the siblings' names, their certificates, and the proxy's own credential. It does not
// know lanes, caches and the form of objects. Package reflector reads the answer, and package
// cached gives it. A sibling is no kube-apiserver: it has another certificate, and may have nothing.
//
// # The request
//
// A seed is an ordinary watch of any state that begins with its objects (resourceVersion=0 and
// sendInitialEvents; KEP-3157), with the header [request.SeedHeader]. Its value is the identity
// that the seed must have; see [Siblings.Identity]. The sibling authenticates the request and asks
// kube-apiserver for the right to it, as for any client. Then it answers from its cache, with its
// own identity in the same header, or refuses. It never passes the request through, starts no lane
// for it, and does not wait for a lane that is being filled. So replicas that start together do not
// wait for each other, and no chain or loop can form. A request that comes back to its own replica
// is refused too, because of its Via header.
//
// Whatever is wrong with one sibling leads to the next, and in the end to a list at kube-apiserver.
// Siblings are asked for a few seconds, and one that answers must go on bringing objects; see
// [Search] and package reflector.
//
// kube-apiserver must stream lists itself (its feature WatchList, on by default since 1.34),
// because a lane knows from its initial events how kube-apiserver ends them. Tables are never
// seeded: they are not listed either.
//
// # Trust
//
// The credential is sent only over TLS, to a server whose certificate is verified: by the authority
// of --seed-certificate-authority, or else by being this replica's own serving certificate.
//
// The objects' bytes, and the resourceVersion that they are said to be as of, are believed, as
// every client of a replica believes them. A sibling that lies could lie to the clients themselves:
// it has the certificate by which they trust it. A seed from it makes this replica wrong, too, until
// the lane is listed at kube-apiserver. That is no new power over any client, because a client
// cannot choose its replica.
//
// These are not believed, but checked with kube-apiserver: that it is the same cluster, the same
// build of kube-apiserver, the same definition of a custom resource, that the resourceVersion is not in
// the future, and that the history since then is still there. A seed does not count as the state at any
// time. A read that must be current is proved at kube-apiserver, as always; a proof that compares objects
// also finds a seed that is wrong.
//
// A file is believed no more than a sibling, and checked in the same way. It is removed when the lane is
// known to be wrong, or etcd to have been restored. It is sealed with a key from the private key by which
// clients trust this replica. Somebody who can write into the directory can put an older file of the same
// lane back, or cut its end off: then the lane goes on from an earlier time, or is listed because
// kube-apiserver does not have the history since then. An etcd that was restored while no replica ran, and has
// passed the file's resourceVersion since, is noticed by the self-check only.
//
// The cluster's identity is the uid of its namespace kube-system. A clone of a cluster, from a
// backup of its etcd, has the same: its replicas need another certificate.
package seed
