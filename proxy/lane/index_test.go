package lane

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
	"github.com/watchfan/watchfan/proxy/upstream"
)

// A lane's cache gets an index of what clients select by, and gives it up when memory is short.
func TestLaneIndexes(t *testing.T) {
	ls := idleLanes(t, &Options{})
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan struct{})
	go func() { ls.Run(ctx); close(done) }()
	t.Cleanup(func() { stop(); <-done })
	l := NewLane(ls, Key{GVR: fillingPods}, upstream.ResourceInfo{GVR: fillingPods, Namespaced: true})
	objects := make([]*framing.Object, 1000)
	for i := range objects {
		name := fmt.Sprintf("o%03d", i)
		objects[i] = &framing.Object{
			Key: "a/" + name, Namespace: "a", Name: name, ResourceVersion: 1, Labels: map[string]string{"app": fmt.Sprint(i / 10)},
		}
	}
	if _, err := l.Cache.Replace(objects, 1, time.Now()); err != nil {
		t.Fatal(err)
	}
	selector, err := labels.Parse("app=7")
	if err != nil {
		t.Fatal(err)
	}
	filter, _ := fanout.NewFilter("", selector, nil, nil)
	steady.Until(t, "index", func() error {
		found := 0
		l.Cache.Snapshot().Ascend(filter, "", func(*framing.Object) bool { found++; return true })
		if found != 10 {
			t.Fatalf("found %d objects", found)
		}
		if l.Cache.Stats().Indexes == 0 {
			return fmt.Errorf("%d objects are found without one", found)
		}
		return nil
	})
	ls.ForgetIndexes()
	if got := l.Cache.Stats().Indexes; got != 0 {
		t.Errorf("%d indexes while memory is short", got)
	}
}
