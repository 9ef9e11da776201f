// Package e2e_test runs the built watchfan between a real kube-apiserver and real clients.
//
// Nearly every test is differential. It sends the same request straight to kube-apiserver and
// through watchfan, and the answers must be the same bytes:
//
//	        ┌──▶ watchfan ──┐
//	client ─┤               ├──▶ kube-apiserver ──▶ etcd
//	        └───────────────┘
//
// The other tests compare what clients receive with a model, break something between the processes,
// or run real clients: kubectl, informers, a controller-runtime manager, curl, Node's http2,
// npm's ws, Kubernetes' client for Node, gzip decoders in other languages. h2spec tests HTTP/2
// itself, and proxytest's attacks go to both servers.
//
// # Running
//
//	make test                                     a dozen tests, in their short form
//	make e2e                                      builds all programs and runs all tests
//	make e2e E2EFLAGS='-tags nightly -http2'      with those of make nightly, over HTTP/2
//	go test ./proxy/suites/e2e -run 'TestOracle$' -v     one test, with the programs that make e2e built
//	make oldest                                   some tests, with the oldest kube-apiserver
//	make versions                                 more of them, with several kube-apiservers
//
// Files with the build tag nightly have tests that take long or break clusters in rare ways. Those of the
// tag hollow need kubelets.
//
// The programs are in bin, or where these variables say. A test without its programs is skipped,
// and fails where CI=true.
//
//	WATCHFAN_BIN         watchfan; for make e2e the one with the race detector
//	WATCHFAN_PLAIN_BIN   watchfan without the race detector, where memory or speed matters
//	DEVCLUSTER_BIN       etcd and kube-apiserver
//	DEVCLUSTER_ARGS      more arguments for every cluster, such as feature gates
//	OLD_DEVCLUSTER_BIN   an older version, for TestUpgrade
//	KUBECTL_BIN          kubectl
//	INFORMERS_BIN        directory that keeps the programs of proxy/suites/e2e/informers between runs
//	CONSISTENCY_BIN      a controller with kube-controller-manager's store of writes: deploy/devcluster/cmd/consistency
//	CONTROLLERS_BIN      the program of proxy/suites/e2e/clients/controllers
//	NODE_CLIENTS         directory with the clients from npm: proxy/suites/e2e/node and its modules
//	H2SPEC_BIN           h2spec, the conformance suite of HTTP/2
//	KUBEPROXY_BIN        kube-proxy's own server without rules: deploy/devcluster/cmd/kubeproxy
//	KUBEMARK_BIN         kubelets without containers, for make hollow
//
// Clients speak HTTP/1.1. A test that takes all ways to watchfan (watchfan.ways) also speaks HTTP/2,
// and so do kubectl and informers over TLS, which choose it by themselves. kube-apiserver's answers
// are compared over HTTP/1.1.
//
// All tests run beside each other (parallel). Most share one cluster and one watchfan, each in a namespace
// of its own. Those that compare what is in all namespaces share another cluster, in which nobody writes
// (quietCluster). A test that restarts or breaks something, or that counts what kube-apiserver is asked,
// starts its own (privateCluster, privateWatchfan).
//
// # Time
//
// No test asserts how long something takes. A test waits for a condition (steady.Until). A watch that is
// compared ends behind a marker object (recording.until), and what has not come before the marker does not
// come. Reads that are compared ask both servers at one resourceVersion, or in the quiet cluster.
//
// # Repeating a run
//
// Tests that draw at random draw the same watches and writes each time, and others with TEST_SEED=N, but
// the processes may meet in another order. -watchers, -writes and -rbac.steps make the tests larger.
//
// # Failures
//
//   - "event 7 is …, want …": watchfan's bytes differ from kube-apiserver's. This is the first
//     difference.
//   - "testdata/scenarios/pods.txt:23: …": so does that line of a scenario; - is kube-apiserver, + is watchfan.
//   - "there is no … after 2m0s": something hangs.
//   - "watchfan's log says …": a data race, a panic, or a cache that differs from kube-apiserver's
//     state. A test reads the log of its own watchfan at the end, and TestMain that of the shared
//     one.
//   - "start devcluster: …": the cluster did not start. This says nothing about watchfan.
//
// Clients with client-go have its own detectors of inconsistency on (proxytest.Detectors). A client
// that finds one panics, and the test that has started it shows the difference.
//
// A test that needs a feature of kube-apiserver is skipped where it is missing (target.enables).
//
// A quotation in a comment is the promise that the test checks. A number beside it, as in
// "contract.md W32", is the promise's place in the list of what clients of kube-apiserver rely on.
//
// # Files
//
//	main_test.go, cluster_test.go, watchfan_test.go   processes
//	definitions_test.go                               custom resources, and caches that are filled
//	turns_test.go                                     which tests run at a time
//	client_test.go, recording_test.go                 requests, and watches with all their events
//	model_test.go                                     what a watch has to bring
//	churn_test.go                                     a steady writer
//	scenarios_test.go, testdata/scenarios             tests as lists of commands, also of kubectl's
//	reads_test.go, testdata/requests                  requests whose answers are compared
//	informers/                                        the program with client-go's informers
//	clients/                                          a controller-runtime manager, and Prometheus' discovery
//	node/                                             the program with clients from npm
//	programs/                                         the module that pins CoreDNS, h2spec and kube-state-metrics
//
// Every other file tests what its name says.
package e2e_test
