package cachesuite

import (
	"context"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/apis/example"
	"k8s.io/apiserver/pkg/storage"
	"k8s.io/apiserver/pkg/storage/etcd3"
)

// etcd is the cluster's etcd, for what kube-apiserver does on its own: it compacts, and it writes
// other resources.
type etcd struct {
	client    *clientv3.Client
	truth     *store
	compacted atomic.Int64 // revision of the last compaction
}

func dialEtcd(endpoint string, truth *store) (*etcd, error) {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	return &etcd{client: client, truth: truth}, err
}

// increaseRV makes etcd's revision one greater, by a write of something else.
func (e *etcd) increaseRV(ctx context.Context, t *testing.T) int64 {
	t.Helper()
	resp, err := e.client.Put(ctx, "cachesuite", "")
	if err != nil {
		t.Fatal(err)
	}
	return resp.Header.Revision
}

// settle waits until nothing has been written for two seconds.
func (e *etcd) settle(ctx context.Context) error {
	quiet, last := time.Now(), int64(0)
	for ; time.Since(quiet) < 2*time.Second; time.Sleep(100 * time.Millisecond) {
		resp, err := e.client.Get(ctx, "any key tells the revision")
		if err != nil {
			return err
		}
		if resp.Header.Revision != last {
			quiet, last = time.Now(), resp.Header.Revision
		}
	}
	return nil
}

// compact forgets the history before a resourceVersion, as kube-apiserver does every five minutes,
// and waits until kube-apiserver's caches have forgotten it. etcd's revision is one greater then.
func (e *etcd) compact(ctx context.Context, t *testing.T, resourceVersion string) {
	t.Helper()
	revision, err := strconv.ParseInt(resourceVersion, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	const key = "compact_rev_key" // k8s.io/apiserver/pkg/storage/etcd3/compact.go
	now, err := e.client.Get(ctx, key)
	if err != nil {
		t.Fatal(err)
	}
	var version int64 // of the key; a compaction must name it
	if len(now.Kvs) > 0 {
		version = now.Kvs[0].Version
	}
	_, _, done, err := etcd3.Compact(ctx, e.client, version, revision)
	if err == nil && done != revision {
		err = fmt.Errorf("another compaction, to %d", done)
	}
	if err != nil {
		t.Fatalf("compact to %d: %v", revision, err)
	}
	e.compacted.Store(revision)
	old := storage.ListOptions{Recursive: true, Predicate: storage.Everything,
		ResourceVersion:      strconv.FormatInt(revision-1, 10),
		ResourceVersionMatch: metav1.ResourceVersionMatchExact}
	for deadline := time.Now().Add(time.Minute); ; time.Sleep(50 * time.Millisecond) {
		if err := e.truth.GetList(ctx, "/pods/", old, &example.PodList{}); err != nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("kube-apiserver still lists at %d after a compaction to %d", revision-1, revision)
		}
	}
}
