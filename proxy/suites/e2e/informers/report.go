package main

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// report is the last line of output. Its maps do not change after newReport.
type report struct {
	ClientGo  string               `json:"clientGo"` // version
	Synced    bool                 `json:"synced"`
	Resources map[string]*resource `json:"resources"`

	mu     sync.Mutex // guards Errors and the counts of every resource
	Errors []string   `json:"errors"`

	byPath map[string]*resource // by the path of the collection over all namespaces
}

// resource is one informer and its requests.
type resource struct {
	Lists      int `json:"lists"`
	Checks     int `json:"checks"`     // lists of exactly one version: those of the inconsistency detector
	WatchLists int `json:"watchLists"` // watches that begin with the state
	Watches    int `json:"watches"`    // other watches

	Updates int `json:"updates"` // handled
	Deletes int `json:"deletes"`

	Objects map[string]object `json:"objects"` // contents of the store in the end, by key

	gvr      schema.GroupVersionResource
	informer cache.SharedIndexInformer
	found    chan struct{} // closed when the handler is told of the object that is waited for
	handled  atomic.Int64  // calls of the handler
}

// object is what there is to compare of an object.
type object struct {
	ResourceVersion string `json:"resourceVersion"`
	Digest          string `json:"digest"`
}

// newReport reads resources from the flag's value.
func newReport(resources string) *report {
	r := &report{ClientGo: clientGo(), Resources: make(map[string]*resource), Errors: []string{},
		byPath: make(map[string]*resource)}
	for name := range strings.SplitSeq(resources, ",") {
		gvr := schema.ParseGroupResource(name).WithVersion("v1")
		res := &resource{gvr: gvr, found: make(chan struct{})}
		r.Resources[name] = res
		root := "/api"
		if gvr.Group != "" {
			root = "/apis/" + gvr.Group
		}
		r.byPath[root+"/"+gvr.Version+"/"+gvr.Resource] = res
	}
	return r
}

// clientGo returns the version of client-go that this program is compiled with.
func clientGo() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			if dep.Path == "k8s.io/client-go" {
				return dep.Version
			}
		}
	}
	return "unknown"
}

// fail notes an error. It may be called from any goroutine.
func (r *report) fail(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.Errors = append(r.Errors, fmt.Sprintf(format, args...))
}

// count adds one to a count of a resource. It may be called from any goroutine.
func (r *report) count(n *int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	*n++
}

// follow lets informer, which has not been started, fill res.
func (r *report) follow(res *resource, informer cache.SharedIndexInformer, until string) error {
	res.informer = informer
	err := informer.SetWatchErrorHandler(func(_ *cache.Reflector, err error) { r.fail("%s: %v", res.gvr.Resource, err) })
	if err != nil {
		return err
	}
	_, err = informer.AddEventHandler(cache.ResourceEventHandlerFuncs{
		AddFunc: func(o any) {
			res.handled.Add(1)
			if m, err := meta.Accessor(o); err == nil && m.GetName() == until {
				close(res.found)
			}
		},
		UpdateFunc: func(any, any) {
			res.handled.Add(1)
			r.count(&res.Updates)
		},
		DeleteFunc: func(any) {
			res.handled.Add(1)
			r.count(&res.Deletes)
		},
	})
	return err
}

// waitSynced waits until all informers have synced, and reports whether that was before ctx ended.
func (r *report) waitSynced(ctx context.Context) bool {
	var all []cache.InformerSynced
	for _, res := range r.Resources {
		all = append(all, res.informer.HasSynced)
	}
	r.Synced = cache.WaitForCacheSync(ctx.Done(), all...)
	return r.Synced
}

// waitFound waits until all handlers have seen the object that is waited for, and everything that
// comes with it: a list is handled object by object, and the last object may be the first of them.
func (r *report) waitFound(ctx context.Context) {
	for name, res := range r.Resources {
		select {
		case <-res.found:
		case <-ctx.Done():
			r.fail("%s: the last object has not come in time", name)
			continue
		}
		for before := int64(-1); before != res.handled.Load() && ctx.Err() == nil; time.Sleep(time.Second) {
			before = res.handled.Load()
		}
	}
}

// finish adds the contents of the stores and returns the report as JSON.
func (r *report) finish() ([]byte, error) {
	for name, res := range r.Resources {
		res.Objects = make(map[string]object)
		for _, key := range res.informer.GetStore().ListKeys() {
			o, _, err := res.informer.GetStore().GetByKey(key)
			if err == nil {
				res.Objects[key], err = describe(o)
			}
			if err != nil {
				r.fail("%s %s: %v", name, key, err)
			}
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return json.Marshal(r)
}

// describe digests an object. It leaves out the apiVersion and kind of objects with a Go type,
// which client-go fills in or clears depending on how the object came.
func describe(stored any) (object, error) {
	o, ok := stored.(runtime.Object)
	if !ok {
		return object{}, fmt.Errorf("the store holds a %T", stored)
	}
	if _, ok := o.(*unstructured.Unstructured); !ok {
		o = o.DeepCopyObject()
		o.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	}
	m, err := meta.Accessor(o)
	if err != nil {
		return object{}, err
	}
	content, err := json.Marshal(o)
	if err != nil {
		return object{}, err
	}
	sum := sha256.Sum256(content)
	return object{m.GetResourceVersion(), hex.EncodeToString(sum[:8])}, nil
}
