//go:build linux

package main

// Units of traffic and memory, by name for the tables.
const (
	unitCPU        = "cpu-ns/delivery"     // of the delivering server
	unitAllCPU     = "all-cpu-ns/delivery" // of all servers
	unitNetCPU     = "net-cpu-ns/delivery" // of all servers, less the cost of the same writes without a watcher
	unitWriteCPU   = "all-cpu-ns/write"    // of all servers, with no watcher
	unitDeliveries = "deliveries/s"
	unitWrites     = "writes/s"
	unitP50        = "p50-ns"
	unitP99        = "p99-ns"
	unitP999       = "p99.9-ns"
	unitPerCore    = "deliveries/core-s" // per second of a core of the delivering server
	unitBatch      = "events/write"      // in one write to a watcher, on average
	unitMemory     = "B/watcher"         // of the delivering server
	unitBytes      = "B/delivery"        // on the wire, without TLS
)
