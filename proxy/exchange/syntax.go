package exchange

// Limits of a request's head, in every protocol.
const (
	// MaxHeaderBytes is the limit of its bytes; the same as kube-apiserver's, which has net/http's.
	MaxHeaderBytes = 1 << 20
	// MaxHeaderLines is the limit of its lines. kube-apiserver has none up to 1.37, and later this
	// one.
	MaxHeaderLines = 16384
)

// TokenLength returns how many bytes at the beginning of line are a token (RFC 9110, section
// 5.6.2).
func TokenLength(line string) int {
	for i := range len(line) {
		if !tokenBytes[line[i]] {
			return i
		}
	}
	return len(line)
}

// PlainHost reports whether host has only characters of a host and a port (RFC 3986, section 3.2),
// including escapes.
func PlainHost(host string) bool {
	for i := range len(host) {
		if !hostBytes[host[i]] {
			return false
		}
	}
	return true
}

var (
	tokenBytes = byteSet(alphanumeric + "!#$%&'*+-.^_`|~")
	hostBytes  = byteSet(alphanumeric + "-._~!$&'()*+,;=:[]%")
)

const alphanumeric = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"

func byteSet(bytes string) (set [256]bool) {
	for _, c := range []byte(bytes) {
		set[c] = true
	}
	return set
}
