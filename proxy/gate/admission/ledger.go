package admission

import (
	"log/slog"
	"time"

	"golang.org/x/time/rate"

	"github.com/watchfan/watchfan/proxy/base/account"
)

// NewLedger returns the ledger for a process that may use so many bytes of memory; 0 is no limit. Of
// the cuts it logs one in ten seconds, on a goroutine of its own: what causes a cut may serve others,
// and must not wait for the log.
func NewLedger(memory int64, log *slog.Logger) *account.Ledger {
	l, logged := account.New(account.LimitsOf(memory)), rate.Sometimes{Interval: 10 * time.Second}
	l.Tell(func(c account.Cut) {
		logged.Do(func() {
			go log.Warn("Cut what was held for a client", "source", c.Source.Name, "stranger", c.Source.Stranger,
				"bytes", c.Bytes, "memoryShort", c.Short)
		})
	})
	return l
}
