package consumers

import (
	"net/http"

	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// kind is how a request was answered, as far as that decides its cost.
type kind uint8

const (
	gets kind = iota
	lists
	watches // the beginning of one
	others
	passedReads
	passedWrites
	kinds // their number
)

func (k kind) passed() bool { return k == passedReads || k == passedWrites }

func kindOf(req *request.Request, x *exchange.Exchange) kind {
	if x.Passed {
		if x.Method == http.MethodGet {
			return passedReads
		}
		return passedWrites
	}
	switch req.MetricVerb() {
	case "get":
		return gets
	case "list":
		return lists
	case "watch":
		return watches
	}
	return others
}

// The model of processor time, in nanoseconds. It was fitted to the processor time of the process while it served
// one kind of request alone over TLS and HTTP/2, 250 a second, on 2 busy cores of an AMD EPYC: `bench guard --only
// cost-`. Only the proportions count. What a request costs falls with their number, and more so on idle cores.
//
//	requestCost     of a request: reading it, finding out whether its client may, and writing an answer
//	byteCost        of a byte of a body or an event: encrypting and writing it; and passedByteCost: reading it too
//	writeCost       of a write to a watch, which has one event or more: with a connection of its own, and not
//	connectionCost  of a new connection, and handshakeCost of TLS on it
//	followCost      of an event from kube-apiserver
//	idleCost        of a second
//
// What a list takes that searches, collects or compresses is not modelled. It is measured, in the read's seat.
var (
	requestCost = [kinds]float64{gets: 168_000, lists: 188_000, watches: 200_000, others: 130_000,
		passedReads: 240_000, passedWrites: 290_000}
	writeCost = [2]float64{7_000, 1_200}
)

const (
	byteCost, passedByteCost      = 0.65, 1.3
	connectionCost, handshakeCost = 100_000, 520_000
	followCost                    = 30_000
	idleCost                      = 2e6
)

// What kube-apiserver takes, in seconds: for a request, for a byte of an object, and for an event to a watch
// (bench/README.md).
const (
	aloneRequest = 250e-6
	aloneByte    = 14.6e-9
	aloneEvent   = 17.9e-6
)

func connectionWork(secure bool) float64 {
	if secure {
		return connectionCost + handshakeCost
	}
	return connectionCost
}

// deliveryWork is the model's cost of what watches were sent. shared is 1 for those that share a connection.
func deliveryWork(d Delivered, shared int) float64 {
	return writeCost[shared]*float64(d.Writes) + byteCost*float64(d.Bytes)
}
