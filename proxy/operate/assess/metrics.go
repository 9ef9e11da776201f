package assess

// The metrics that are read.
const (
	longRunning    = "apiserver_longrunning_requests"
	watchEvents    = "apiserver_watch_events_total"
	watchBytes     = "apiserver_watch_events_sizes_sum"
	received       = "apiserver_watch_cache_events_received_total"
	initEvents     = "apiserver_init_events_total"
	listedObjects  = "apiserver_cache_list_returned_objects_total"
	requests       = "apiserver_request_total"
	storedObjects  = "apiserver_resource_objects"
	storedObjects0 = "apiserver_storage_objects" // before Kubernetes 1.34
	processCPU     = "process_cpu_seconds_total"
	processMemory0 = "process_resident_memory_bytes"
	processStart   = "process_start_time_seconds"
	buildInfo      = "kubernetes_build_info"
)

// metric is a metric that is read.
type metric struct {
	name  string
	means string // what its absence means; "": nothing, as of metrics of starts before the first
	add   func(s *sample, labels map[string]string, v float64)
}

// wanted are the metrics, in the order in which absent ones are named.
var wanted = []metric{
	{longRunning, "open watches are not known", ofWatches(func(c *counts, v float64) {
		c.watches += v
		c.begun += v
	})},
	{watchEvents, "deliveries are not known", each(func(c *counts, v float64) { c.deliveries += v })},
	{watchBytes, "bytes are not known", each(func(c *counts, v float64) { c.bytes += v })},
	{received, "events are not known, and what is left is too low", each(func(c *counts, v float64) { c.events += v })},
	{processCPU, "kube-apiserver's CPU is not known",
		func(s *sample, _ map[string]string, v float64) { s.cpu = v }},
	{processMemory0, "kube-apiserver's memory is not known",
		func(s *sample, _ map[string]string, v float64) { s.memory = v }},
	{initEvents, "", each(func(c *counts, v float64) { c.initial += v })},
	{listedObjects, "", each(func(c *counts, v float64) { c.listed += v })},
	{requests, "", ofWatches(func(c *counts, v float64) { c.begun += v })},
	{storedObjects, "", each(store)}, // see missing
	{storedObjects0, "", each(store)},
	{processStart, "", func(s *sample, _ map[string]string, v float64) { s.start = v }},
	{buildInfo, "", func(s *sample, labels map[string]string, _ float64) { s.version = labels["git_version"] }},
}

func store(c *counts, v float64) { c.stored = max(c.stored, v) }

// each returns a function that adds a value to the counts of its resource.
func each(add func(c *counts, v float64)) func(*sample, map[string]string, float64) {
	return func(s *sample, labels map[string]string, v float64) {
		r := resourceOf(labels)
		c := s.resources[r]
		if add(&c, v); c != (counts{}) {
			s.resources[r] = c
		}
	}
}

// ofWatches is each for metrics of requests: it leaves out all but watches.
func ofWatches(add func(c *counts, v float64)) func(*sample, map[string]string, float64) {
	toAll := each(add)
	return func(s *sample, labels map[string]string, v float64) {
		if labels["verb"] == "WATCH" && labels["subresource"] == "" {
			toAll(s, labels, v)
		}
	}
}

// missing says which metrics kube-apiserver does not have, and what that means.
func missing(s *sample) []string {
	out := []string{}
	for _, m := range wanted {
		if m.means != "" && !s.found[m.name] {
			out = append(out, m.name+": "+m.means)
		}
	}
	if !s.found[storedObjects] && !s.found[storedObjects0] {
		out = append(out, storedObjects+": the tier's memory is too low")
	}
	return out
}
