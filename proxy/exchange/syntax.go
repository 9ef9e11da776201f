package exchange

// Limits of a request's head, in every protocol.
const (
	// MaxHeaderBytes is the limit of its bytes. kube-apiserver's limit is 1 MiB. Tokens have a few
	// KiB. The longest headers are lists of groups and selectors; none is known that comes near the
	// limit.
	MaxHeaderBytes = 64 << 10
	// MaxHeaderLines is the limit of its lines. Some of the work on them grows with the square of
	// their number. The limit leaves room for a user in hundreds of groups, which a front proxy
	// sends as one line each.
	MaxHeaderLines = 1000
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
