//go:build linux

// Package measure has what every benchmark measures with: the CPU time and memory of processes, the
// kernel's memory, latency histograms, open-loop timetables, and sockets that one goroutine reads
// by the thousand.
//
// It knows nothing of Kubernetes, of the peers that are compared, or of reports.
package measure
