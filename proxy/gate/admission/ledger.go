package admission

import (
	"log/slog"
	"sync"
	"time"

	"github.com/watchfan/watchfan/proxy/base/account"
)

// NewLedger returns the ledger for a process that may use so many bytes of memory; 0 is no limit. Of
// the cuts it logs one in ten seconds, on a goroutine of its own: what causes a cut may serve others,
// and must not wait for the log.
func NewLedger(memory int64, log *slog.Logger) *account.Ledger {
	l := account.New(account.LimitsOf(memory))
	var mu sync.Mutex
	var logged time.Time
	l.Tell(func(c account.Cut) {
		mu.Lock()
		defer mu.Unlock()
		if !logged.IsZero() && time.Since(logged) < cutsLoggedEvery {
			return
		}
		logged = time.Now()
		go log.Warn("Cut what was held for a client", "source", c.Source.Name, "stranger", c.Source.Stranger,
			"bytes", c.Bytes, "memoryShort", c.Short)
	})
	return l
}

const cutsLoggedEvery = 10 * time.Second
