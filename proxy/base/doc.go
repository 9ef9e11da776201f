// Package base holds what any server has: settings, metrics, files that are read again, and bounds on
// what is held and done at a time.
//
// It never knows HTTP, Kubernetes or a client.
//
//	machine     what the kernel says of this process: memory, processor time, open files
//	semaphore   a bound on how many goroutines do something at a time
//	account     the memory that clients make the proxy hold, each byte for one source
//	option      one table of settings: flags, file, help, bounds
//	exposition  /metrics
//	files       what files contain, read again when they change
package base
