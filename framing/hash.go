package framing

// HashOf returns the hash of a field's value that a shardSelector compares with its ranges: FNV-1a
// with 64 bits (KEP-5866; k8s.io/apimachinery/pkg/sharding/hash.go). It allocates nothing.
func HashOf[T ~string | ~[]byte](value T) uint64 {
	hash := uint64(hashOfNothing)
	for i := range len(value) {
		hash = (hash ^ uint64(value[i])) * hashPrime
	}
	return hash
}

// hashOfNothing is the hash of "".
const (
	hashOfNothing = 0xcbf29ce484222325
	hashPrime     = 0x100000001b3
)

// UIDHash returns [HashOf] metadata.uid, or of "" if there is none. It costs nothing: scanners note
// it beside the resourceVersion.
func (o *Object) UIDHash() uint64 { return o.uidHash }
