package lane

import (
	"testing"

	"github.com/watchfan/watchfan/proxy/reflector"
	"github.com/watchfan/watchfan/proxy/request"
	"github.com/watchfan/watchfan/proxy/upstream"
)

// The histories of all lanes with a selection fit in 256 MiB, whatever --history-bytes says. Clients
// choose the selections.
func TestTableHistories(t *testing.T) {
	for given, most := range map[int64]int64{64 << 20: 256 << 20 / mostSelections, 1 << 10: 1 << 10} {
		ls := idleLanes(t, &Options{HistoryFrames: 100_000, HistoryBytes: given})
		l := NewLane(ls, Key{
			GVR:            fillingPods,
			Representation: request.Representation{Table: "v1"},
			Selection:      reflector.Selection{Labels: "a=b"},
		}, upstream.ResourceInfo{GVR: fillingPods})
		if got := l.Cache.Limits(); got.HistoryBytes > most || got.HistoryEvents > mostTableEvents {
			t.Errorf("a history of %d bytes and %d events, want at most %d and %d",
				got.HistoryBytes, got.HistoryEvents, most, mostTableEvents)
		}
	}
}
