package report

// A Peer is a server to compare: kube-apiserver itself, a proxy in front of it, or the floor.
type Peer struct {
	Name string // as in results
	TLS  bool
}

func (p Peer) String() string {
	if p.TLS {
		return p.Name + "/tls"
	}
	return p.Name + "/plain"
}

// The peers that this program can start.
var (
	Direct       = Peer{"kube-apiserver", true}
	WatchfanTLS  = Peer{"watchfan", true}
	WatchfanBare = Peer{"watchfan", false}
	FloorBare    = Peer{"writev", false} // it has no cluster, and its turn comes after the others
	Nginx        = Peer{"nginx", true}   // of the part through alone
	Peers        = []Peer{Direct, WatchfanTLS, WatchfanBare}
)

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
