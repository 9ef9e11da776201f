//go:build linux

package report

// Units of traffic and memory, by name for the tables.
const (
	UnitCPU        = "cpu-ns/delivery"     // of the delivering server
	UnitAllCPU     = "all-cpu-ns/delivery" // of all servers
	UnitNetCPU     = "net-cpu-ns/delivery" // of all servers, less the cost of the same writes without a watcher
	UnitWriteCPU   = "all-cpu-ns/write"    // of all servers, with no watcher
	UnitDeliveries = "deliveries/s"
	UnitWrites     = "writes/s"
	UnitP50        = "p50-ns"
	UnitP99        = "p99-ns"
	UnitP999       = "p99.9-ns"
	UnitPerCore    = "deliveries/core-s" // per second of a core of the delivering server
	UnitBatch      = "events/write"      // in one write to a watcher, on average
	UnitMemory     = "B/watcher"         // of the delivering server
	UnitBytes      = "B/delivery"        // on the wire, without TLS
)
