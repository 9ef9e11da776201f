package fanout

import (
	"github.com/VictoriaMetrics/metrics"

	"github.com/watchfan/watchfan/framing"
)

// Variant is what subscriptions with the same filter may differ in, and still share everything but
// their group. Its address identifies it. It is immutable.
type Variant struct {
	// Trim leaves fields out of all objects; nil leaves them whole.
	Trim *framing.Trim
	// Account counts the subscriptions and what they are sent; nil for none.
	Account *Account
}

// Whole is the Variant of clients that are in no view and ask for whole objects.
var Whole = &Variant{}

// Lean is the Variant of clients that ask for objects without metadata.managedFields (KEP-5958).
var Lean = &Variant{Trim: framing.Lean}

// Account counts subscriptions that belong together, such as those of a view, and the bytes that
// are written to them. Both fields are set.
type Account struct {
	Subscriptions *metrics.Gauge
	Bytes         *metrics.Counter
}
