// Package measure holds the instruments of all benchmarks:
//
//	proc     CPU time and memory of processes, so far and in a window of time
//	latency  histograms
//	pace     open-loop timetables
//	sock     sockets, of which one goroutine reads thousands, and how it waits for them
//
// It knows nothing of Kubernetes, of peers, or of reports.
package measure
