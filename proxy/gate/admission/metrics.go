package admission

import "github.com/watchfan/watchfan/proxy/base/exposition"

var (
	memorySheds = exposition.Describe("counter", "watchfan_memory_sheds_total",
		"Lanes without clients stopped because memory was short.")
	memoryLimitBytes = exposition.Describe("gauge", "watchfan_memory_limit_bytes",
		"Memory limit. 0 is no limit.")
	memoryUsedBytes = exposition.Describe("gauge", "watchfan_memory_used_bytes",
		"Memory in use that counts towards the limit. At 80% caches are given up, at 90% new watches and lists are rejected. 0 without a limit.")
)
