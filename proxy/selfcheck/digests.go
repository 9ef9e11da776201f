package selfcheck

import (
	"cmp"
	"slices"
	"strconv"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/lane"
)

// LaneDigest is the digest of one lane's objects at a resourceVersion.
type LaneDigest struct {
	Encoding        string `json:"encoding"`
	ResourceVersion string `json:"resourceVersion"`
	Digest          string `json:"digest,omitempty"`
	Objects         int    `json:"objects"`
	Error           string `json:"error,omitempty"` // why there is no digest
}

// Digests returns the digests of a resource's lanes at a resourceVersion, by encoding. 0 is the
// resourceVersion that each lane has reached. The resource has the form apps/v1/deployments. It
// takes about a microsecond for each object of each lane. It may be called from any goroutine.
func Digests(lanes *lane.Lanes, resource string, rv uint64) (digests []LaneDigest) {
	for _, all := range lanes.Collections() {
		for _, l := range all {
			if l.Resource() == resource {
				digests = append(digests, digestAt(l, rv))
			}
		}
	}
	slices.SortFunc(digests, func(a, b LaneDigest) int { return cmp.Compare(a.Encoding, b.Encoding) })
	return digests
}

// digestAt returns the digest of a lane's objects at a resourceVersion, 0 for the current one.
func digestAt(l *lane.Lane, rv uint64) LaneDigest {
	s := l.Cache.Snapshot()
	if rv == 0 {
		rv = s.ResourceVersion
	}
	d := LaneDigest{Encoding: l.Representation.String(), ResourceVersion: strconv.FormatUint(rv, 10)}
	reached := s.ResourceVersion
	if s.ResourceVersion != rv {
		var ok bool
		if s, ok = l.Cache.SnapshotAt(rv); !ok {
			d.Error = "the history does not reach back to it"
			if rv > reached {
				d.Error = "the cache has not reached it"
			}
			return d
		}
	}
	all := snapshotDigest(s)
	d.Digest, d.Objects = all.String(), all.objects
	return d
}

// snapshotDigest returns the digest of a snapshot's objects.
func snapshotDigest(s fanout.Snapshot) (all digest) {
	h := &hasher{}
	s.All(func(o *framing.Object) bool {
		all.add(hash(h, o.Key, o.UID(), o.ResourceVersion))
		return true
	})
	return all
}
