// Package cachesuite runs Kubernetes' own suite for storage and watch caches
// (k8s.io/apiserver/pkg/storage/testing) against kube-apiserver and against watchfan. The people
// who define what a watch and a list are have written its tests. It is a module of its own, so that
// watchfan does not depend on k8s.io/apiserver, whose version here is that of the dev cluster.
//
//	make cachesuite       the suite
//	make throughput       the suite's benchmark of writes beside watches and lists
//
// The suite tests a storage.Interface. Here that is a store, which speaks REST to one server and
// keeps nothing. The suite's Pods are custom resources with the same fields, and with field
// selectors for spec.nodeName. WATCHFAN_BIN and DEVCLUSTER_BIN name the programs if they are not in
// bin. A test without its programs is skipped, and fails where CI is set.
//
// # Verdicts
//
// Each test runs at kube-apiserver, at watchfan over HTTP/1.1, and at watchfan over HTTP/2 in a
// crowd of other clients. watchfan passes a few small reads at a time on to kube-apiserver, and
// answers those of a crowd itself. A process of its own runs the suite at each server, because a
// test of the suite must be the only one, and reports the outcome of each subtest (TestOneServer).
// TestCacheSuite compares: a test must pass at kube-apiserver and have the same outcome at
// watchfan. All that is not so is listed with its reason, and an entry that is not needed any more
// is an error:
//
//	suiteTests   (suite_test.go)       whole tests that REST can't express
//	exceptions   (exceptions_test.go)  subtests that don't pass at kube-apiserver over REST
//	differences  (exceptions_test.go)  subtests that pass at kube-apiserver and not at watchfan
//
// # What is left out
//
//   - Transformers, which change or damage what kube-apiserver stores: RunTestGuaranteedUpdate,
//     RunTestGuaranteedUpdateChecksStoredData, RunTestListResourceVersionMatch,
//     RunTestTransformationFailure, RunTestWatchError, RunTestWatchWithUnsafeDelete,
//     RunWatchErrorIsBlockingFurtherEvents, RunTestGetListWithErrorAggregation and its twin, and deletions
//     of what can't be read (…ExpectedTransformOrDecodeError).
//   - Objects with a time to live: RunTestCreateWithTTL, RunTestGuaranteedUpdateWithTTL.
//   - What is within a process: RunTestStats (counts and sizes), RunTestWatchInitializationSignal,
//     RunTestWatchContextCancel, and in all tests the counts of requests to etcd.
//   - Keys. A URL names a collection or an object, and nothing between: RunTestKeySchema, a third of
//     RunTestGetListRecursivePrefix. An object can't get another name:
//     RunTestGuaranteedUpdateWithConflict.
//   - Control over the history of kube-apiserver's cache: the end of RunTestWatchFromZero. A
//     watch from resourceVersion 1, which in a real cluster is older than any history.
//   - RunTestListInconsistentContinuation, which pages through a list at resourceVersion 0. A cache
//     ignores the limit of such a list.
//
// # How the store says what REST doesn't
//
//   - kube-apiserver sets metadata.uid, creationTimestamp, generation and managedFields. The suite
//     does not see them. A uid or generation that the suite writes is kept in an annotation.
//   - The answer to a DELETE does not say its resourceVersion. A watch at kube-apiserver does.
//   - A conditional write reads the object at kube-apiserver, and gives its resourceVersion to the
//     server under test as the condition.
//   - A context's deadline becomes a watch's timeoutSeconds.
//   - Compactions and revisions without an object are the suite's own writes to etcd. Nobody else
//     writes there: kube-apiserver runs without its lease and its compactor.
//   - RunOptionalTestProgressNotify is about progress that etcd reports. A client of kube-apiserver
//     sees it in a bookmark. The progress here includes another object of the resource, because
//     without any, kube-apiserver tells its clients, and so watchfan, only once a minute.
package cachesuite
