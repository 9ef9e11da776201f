package timer

import "time"

// Only tests are bound by the rules.
func Wait() { time.Sleep(time.Second) }
