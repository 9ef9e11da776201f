package cachesuite

import (
	"context"
	"encoding/json"
	"net/http"
	"os"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
	upstream "k8s.io/apiserver/pkg/storage/testing"
)

// suiteTest is a test of Kubernetes' suite.
type suiteTest struct {
	function string // of the suite
	run      func(ctx context.Context, t *testing.T, s *store)
	skip     string // why the test can't run over REST, instead of run
	cluster  bool   // of a cluster-scoped resource
}

// suiteTests are all tests of the suite. TestSuiteIsComplete compares them with its source.
var suiteTests = []suiteTest{
	{function: "RunTestCreate", run: func(ctx context.Context, t *testing.T, s *store) {
		upstream.RunTestCreate(ctx, t, s, func(context.Context, *testing.T, string) {})
	}},
	{function: "RunTestCreateWithTTL", skip: noTTL},
	{function: "RunTestCreateWithKeyExist", run: plain(upstream.RunTestCreateWithKeyExist)},
	{function: "RunTestGet", run: plain(upstream.RunTestGet)},
	{function: "RunTestUnconditionalDelete", run: plain(upstream.RunTestUnconditionalDelete)},
	{function: "RunTestConditionalDelete", run: plain(upstream.RunTestConditionalDelete)},
	{function: "RunTestDeleteWithSuggestion", run: plain(upstream.RunTestDeleteWithSuggestion)},
	{function: "RunTestDeleteWithSuggestionAndConflict", run: plain(upstream.RunTestDeleteWithSuggestionAndConflict)},
	{function: "RunTestDeleteWithConflict", run: plain(upstream.RunTestDeleteWithConflict)},
	{function: "RunTestDeleteWithSuggestionOfDeletedObject", run: plain(upstream.RunTestDeleteWithSuggestionOfDeletedObject)},
	{function: "RunTestValidateDeletionWithSuggestion", run: plain(upstream.RunTestValidateDeletionWithSuggestion)},
	{function: "RunTestValidateDeletionWithOnlySuggestionValid",
		run: plain(upstream.RunTestValidateDeletionWithOnlySuggestionValid)},
	{function: "RunTestPreconditionalDeleteWithSuggestion", run: plain(upstream.RunTestPreconditionalDeleteWithSuggestion)},
	{function: "RunTestPreconditionalDeleteWithOnlySuggestionPass",
		run: plain(upstream.RunTestPreconditionalDeleteWithOnlySuggestionPass)},
	{function: "RunTestList", run: func(ctx context.Context, t *testing.T, s *store) {
		upstream.RunTestList(ctx, t, s, s.etcd.compact, true, upstream.NewKubernetesRecorder(nil))
	}},
	{function: "RunTestConsistentList", run: func(ctx context.Context, t *testing.T, s *store) {
		upstream.RunTestConsistentList(ctx, t, s, s.etcd.increaseRV, true, true, true)
	}},
	{function: "RunTestGetListNonRecursive", run: func(ctx context.Context, t *testing.T, s *store) {
		upstream.RunTestGetListNonRecursive(ctx, t, s.etcd.increaseRV, s)
	}},
	{function: "RunTestGetListRecursivePrefix", run: plain(upstream.RunTestGetListRecursivePrefix)},
	{function: "RunTestListContinuation", run: paged(upstream.RunTestListContinuation)},
	{function: "RunTestListPaginationRareObject", run: paged(upstream.RunTestListPaginationRareObject), cluster: true},
	{function: "RunTestListContinuationWithFilter", run: paged(upstream.RunTestListContinuationWithFilter)},
	{function: "RunTestListInconsistentContinuation",
		skip: "it pages through a list at resourceVersion 0, and a cache ignores the limit of that"},
	{function: "RunTestListResourceVersionMatch", skip: noTransformer},
	{function: "RunTestListPaging", run: plain(upstream.RunTestListPaging)},
	{function: "RunTestNamespaceScopedList", run: plain(upstream.RunTestNamespaceScopedList)},
	{function: "RunTestCompactRevision", run: func(ctx context.Context, t *testing.T, s *store) {
		upstream.RunTestCompactRevision(ctx, t, s, s.etcd.increaseRV, s.etcd.compact)
	}},
	{function: "RunTestGuaranteedUpdate", skip: noTransformer},
	{function: "RunTestGuaranteedUpdateWithTTL", skip: noTTL},
	{function: "RunTestGuaranteedUpdateChecksStoredData", skip: noTransformer},
	{function: "RunTestGuaranteedUpdateWithConflict", skip: "it renames an object"},
	{function: "RunTestGuaranteedUpdateWithSuggestionAndConflict",
		run: plain(upstream.RunTestGuaranteedUpdateWithSuggestionAndConflict)},
	{function: "RunTestTransformationFailure", skip: noTransformer},
	{function: "RunTestStats", skip: "no request returns the counts and sizes of a cache"},
	{function: "RunTestKeySchema", skip: "URLs take the place of keys"},
	{function: "RunTestWatch", run: plain(upstream.RunTestWatch)},
	{function: "RunTestWatchFromZero", run: func(ctx context.Context, t *testing.T, s *store) {
		upstream.RunTestWatchFromZero(ctx, t, s, nil)
	}},
	{function: "RunTestDeleteTriggerWatch", run: plain(upstream.RunTestDeleteTriggerWatch)},
	{function: "RunTestWatchFromNonZero", run: plain(upstream.RunTestWatchFromNonZero)},
	{function: "RunTestDelayedWatchDelivery", run: plain(upstream.RunTestDelayedWatchDelivery)},
	{function: "RunTestWatchError", skip: noTransformer},
	{function: "RunTestDeleteExpectedTransformOrDecodeError", skip: noTransformer},
	{function: "RunTestDeleteWithConflictAndMissingExpectedTransformOrDecodeError", skip: noTransformer},
	{function: "RunTestDeleteWithSuggestionAndMissingExpectedTransformOrDecodeError", skip: noTransformer},
	{function: "RunTestGetListWithErrorAggregation", skip: noTransformer},
	{function: "RunTestGetListWithoutErrorAggregation", skip: noTransformer},
	{function: "RunTestWatchWithUnsafeDelete", skip: noTransformer},
	{function: "RunTestWatchContextCancel", skip: "it ends a request before it is sent"},
	{function: "RunTestWatcherTimeout", run: plain(upstream.RunTestWatcherTimeout)},
	{function: "RunTestWatchDeleteEventObjectHaveLatestRV", run: plain(upstream.RunTestWatchDeleteEventObjectHaveLatestRV)},
	{function: "RunTestWatchInitializationSignal", skip: "the signal is within kube-apiserver"},
	{function: "RunOptionalTestProgressNotify", run: func(ctx context.Context, t *testing.T, s *store) {
		ctx, cancel := context.WithTimeout(ctx, 4*time.Second) // a bookmark comes 2 s before the end
		defer cancel()
		upstream.RunOptionalTestProgressNotify(ctx, t, s, s.progress)
	}},
	{function: "RunTestClusterScopedWatch", run: plain(upstream.RunTestClusterScopedWatch), cluster: true},
	{function: "RunTestNamespaceScopedWatch", run: plain(upstream.RunTestNamespaceScopedWatch)},
	{function: "RunTestWatchDispatchBookmarkEvents", run: func(ctx context.Context, t *testing.T, s *store) {
		upstream.RunTestWatchDispatchBookmarkEvents(ctx, t, s, true)
	}},
	{function: "RunTestOptionalWatchBookmarksWithCorrectResourceVersion",
		run: plain(upstream.RunTestOptionalWatchBookmarksWithCorrectResourceVersion)},
	{function: "RunSendInitialEventsBackwardCompatibility", run: plain(upstream.RunSendInitialEventsBackwardCompatibility)},
	{function: "RunWatchSemantics", run: plain(upstream.RunWatchSemantics)},
	{function: "RunWatchSemanticInitialEventsExtended", run: plain(upstream.RunWatchSemanticInitialEventsExtended)},
	{function: "RunWatchListMatchSingle", run: plain(upstream.RunWatchListMatchSingle)},
	{function: "RunWatchErrorIsBlockingFurtherEvents", skip: noTransformer},
}

const (
	noTransformer = "a transformer within kube-apiserver changes or damages what is stored"
	noTTL         = "an object has no time to live"
)

// plain is a test that only needs a store.
func plain(f func(context.Context, *testing.T, storage.Interface)) func(context.Context, *testing.T, *store) {
	return func(ctx context.Context, t *testing.T, s *store) { f(ctx, t, s) }
}

// paged is a test that could also count reads of etcd.
func paged(f func(context.Context, *testing.T, storage.Interface, upstream.CallsValidation),
) func(context.Context, *testing.T, *store) {
	return func(ctx context.Context, t *testing.T, s *store) {
		f(ctx, t, s, func(*testing.T, uint64, uint64) {})
	}
}

// underTest is the variable of the environment with the server that TestOneServer tests, in JSON.
const underTest = "CACHESUITE_SERVER"

// TestOneServer runs the suite against one server. TestCacheSuite runs it in a process of its own
// for each server, and reads the verdicts from its output.
func TestOneServer(t *testing.T) {
	content := os.Getenv(underTest)
	if content == "" {
		t.Skip("TestCacheSuite runs it")
	}
	var s server
	if err := json.Unmarshal([]byte(content), &s); err != nil {
		t.Fatal(err)
	}
	pods, clusterPods, err := s.stores()
	if err != nil {
		t.Fatal(err)
	}
	for _, store := range []*store{pods, clusterPods} {
		store.serve(t)
		if s.Crowd {
			store.crowd(t)
		}
	}
	if err := pods.etcd.settle(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, test := range suiteTests {
		if test.run == nil {
			continue
		}
		t.Run(test.function, func(t *testing.T) {
			store := pods
			if test.cluster {
				store = clusterPods
			}
			store.clear(t)
			test.run(t.Context(), t, store)
		})
	}
}

// serve creates the custom resource, and watches it until the test ends. A server that keeps caches
// keeps one for it then.
func (s *store) serve(t testing.TB) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	if err := s.truth.define(ctx); err != nil {
		t.Fatalf("create custom resource %s: %v", s.resource, err)
	}
	w, err := s.watch(t.Context(), place{}, storage.ListOptions{ResourceVersion: "0"})
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for range w.ResultChan() {
		}
	}()
}

// crowd has clients read the current state of the collection together, twice a second, until the
// test ends.
func (s *store) crowd(t *testing.T) {
	var clients sync.WaitGroup
	t.Cleanup(clients.Wait)
	clients.Go(func() {
		for ; t.Context().Err() == nil; time.Sleep(500 * time.Millisecond) {
			var reads sync.WaitGroup
			for range 10 {
				reads.Go(func() {
					_, err := s.GetCurrentResourceVersion(t.Context())
					if err != nil && t.Context().Err() == nil {
						t.Errorf("a list of the crowd: %v", err)
					}
				})
			}
			reads.Wait()
		}
	})
}

// clear deletes all objects.
func (s *store) clear(t *testing.T) {
	t.Helper()
	var list example.PodList
	opts := storage.ListOptions{Recursive: true, Predicate: storage.Everything}
	if err := s.truth.GetList(t.Context(), "/pods/", opts, &list); err != nil {
		t.Fatal(err)
	}
	for _, pod := range list.Items {
		p := place{pod.Namespace, pod.Name}
		if err := s.truth.object(http.MethodDelete, p).Do(t.Context()).Error(); err != nil {
			t.Fatal(err)
		}
	}
}

// progress makes the resource's history longer, and etcd's revision greater than that, and waits
// until kube-apiserver knows.
func (s *store) progress(ctx context.Context, t *testing.T) int64 {
	t.Helper()
	pod := &example.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "unwatched", Name: "pod"}}
	if err := s.Create(ctx, "/pods/unwatched/pod", pod, pod, 0); err != nil {
		t.Fatal(err)
	}
	revision := s.etcd.increaseRV(ctx, t)
	if _, err := s.truth.GetCurrentResourceVersion(ctx); err != nil {
		t.Fatal(err)
	}
	return revision
}
