// Package selfcheck compares lanes with kube-apiserver while they are served. A lane is right only
// if its upstream watch has brought every change and the cache has applied it. Nothing else would
// show that a change is missing: clients would go on with the wrong state.
//
//	checker.go     which resource is compared, and when; --self-check-interval
//	comparison.go  one resource: the list beside the lanes' snapshots, which objects differ
//	pages.go       the list, page by page, and digests
//
// It knows lanes and what they offer: a page of upstream's identities, snapshots at a
// resourceVersion, and a place for the result. Lanes do not know it. It knows no client.
//
// # A comparison
//
// Upstream lists the metadata of the collection in pages. The first page says as of which
// resourceVersion R the list is, and its continue tokens keep the others at R. The lane's side is
// its snapshot at R, taken from the history right after the first page. Both are walked beside each other,
// in the order of their keys, so nothing is kept but the page.
//
//	first page ──▶ R ──▶ snapshot of each lane at R ──▶ page by page: the same keys, versions and uids?
//
// One list serves all lanes of a resource, because they hold the same objects in different
// representations. Lanes of Tables hold no objects and are not compared.
//
// A quiet resource's stream does not say that it has reached R. Then the lane's latest snapshot is
// compared. If it has the objects of the list in the same versions, its state is that of R (see
// package lane, Freshness). If not, the lane is compared with another list, whose R it must reach. The
// comparison fails if that takes too long, and is never a difference before R is reached.
//
// # What follows
//
// If the objects differ, the collection is listed again. The cache takes the list, and clients are
// told: of objects that are gone as DELETED; of anything else by 410, because no event may carry a
// resourceVersion that clients have passed (package fanout, Relists). Informers then list again.
// If they differ again, although the collection has been listed meanwhile, the cache can't be repaired:
// the resource is mistrusted, and passed through for an hour (package lane).
//
// A comparison fails if upstream does not answer, forgets R in the middle (410), or lists in
// another order, and if the lane is listed again meanwhile. Nothing follows from that but the next
// comparison.
//
// # Cost
//
// One resource is compared at a time, by one goroutine. Upstream works for it in at most a quarter
// of the time: a pause three times as long follows each page. While memory is short nothing is
// compared.
//
// # Two replicas
//
// /debug/lanes shows the digest of each lane's last comparison and its resourceVersion. Replicas
// that hold the same objects have the same digest, in every representation. It can be computed
// anywhere:
//
//	hash(object) = first 16 bytes of SHA-256(key NUL uid NUL resourceVersion), a big-endian number
//	digest       = sum of all hashes modulo 2^128, in 32 hexadecimal digits
//
// The key is name, or namespace/name; the resourceVersion is decimal.
package selfcheck
