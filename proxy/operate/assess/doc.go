// Package assess is the command watchfan assess: would watchfan help this cluster? It reads
// kube-apiserver's metrics twice, some time apart, and estimates what its watches cost now and would
// cost with a tier of watchfan in front of it.
//
//	command.go     the command and its flags
//	scrape.go      /metrics of kube-apiserver: the lines that matter, within bounds
//	metrics.go     which metrics these are, and what they count
//	sample.go      one scrape, by resource
//	figures.go     what a delivery, an object and a watch cost, as bench has measured it
//	assessment.go  two samples and the figures, to an Assessment
//	what_if.go     what a program would cost that is not there yet
//	verdict.go     whether the cluster needs watchfan, and why
//	text.go        the Assessment as a table
//
// # What it knows
//
//	                    read from                                       for
//	watches             apiserver_longrunning_requests{verb="WATCH"}    what is open now
//	deliveries, bytes   apiserver_watch_events_total, …_sizes_sum       what is written to clients
//	events              apiserver_watch_cache_events_received_total     what changes
//	objects             apiserver_init_events_total,
//	                    apiserver_cache_list_returned_objects_total     what clients are sent at the start
//	starts              apiserver_request_total{verb="WATCH"}           how many objects a start takes
//	stored objects      apiserver_resource_objects                      what each replica holds
//	CPU, memory         process_cpu_seconds_total, process_resident_memory_bytes
//
// Events that are dispatched are not used: bookmarks are among them. Objects for initial events are
// counted before selectors. So deliveries, from which they are taken off, are rather too few.
//
// It needs the right to get /metrics and no other. It does not know who watches, nor what selectors
// they have. If there are several kube-apiservers, it knows only the one that has answered.
//
// It knows nothing of a running watchfan: see package diagnose for that.
package assess
