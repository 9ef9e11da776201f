package exchange

// Limits of a request's head, in every protocol.
const (
	// MaxHeaderBytes is the limit of its bytes; the same as kube-apiserver's, which has net/http's.
	MaxHeaderBytes = 1 << 20
	// MaxHeaderLines is the limit of its lines. kube-apiserver has none up to 1.37, and later this
	// one.
	MaxHeaderLines = 16384
)
