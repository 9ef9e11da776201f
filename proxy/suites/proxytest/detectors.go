package proxytest

import "regexp"

// Detectors are environment variables that turn client-go's own checks on. An informer compares its
// initial state with a list of exactly that version, which only kube-apiserver answers, and client-go
// 0.31 does so for every list. If they differ, client-go logs the difference, and the program panics.
//
// client-go reads them before main begins. A process that starts kube-apiserver must not have them,
// because kube-apiserver is a client of its own.
var Detectors = []string{"KUBE_WATCHLIST_INCONSISTENCY_DETECTOR=true", "KUBE_LIST_FROM_CACHE_INCONSISTENCY_DETECTOR=true"}

// detectorNotice matches what client-go logs for each comparison.
var detectorNotice = regexp.MustCompile(`(?m)^.*data consistency check .*is enabled, this will result in an additional call.*\n`)

// WithoutNotices returns what a program with Detectors has printed, without client-go's line that it
// compares.
func WithoutNotices(output string) string { return detectorNotice.ReplaceAllString(output, "") }

// inconsistency matches what client-go logs before it panics.
var inconsistency = regexp.MustCompile("(?i)previously received data .*is different than received by the standard list|" +
	"data inconsistency detected for")

// Complaints returns what is worth showing of the output of a program with Detectors: what a detector
// has found, or else the end.
func Complaints(output []byte) []byte {
	const most = 4000
	if i := inconsistency.FindIndex(output); i != nil {
		return output[i[0]:min(i[0]+most, len(output))]
	}
	return output[max(0, len(output)-most):]
}
