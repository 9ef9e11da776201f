//go:build linux

package load

// ownName is the name of this program among the processes, and its User-Agent.
const Name = "bench"
