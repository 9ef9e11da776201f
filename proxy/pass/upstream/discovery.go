package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/base/semaphore"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/remember"
	"github.com/watchfan/watchfan/proxy/gate/request"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// ResourceInfo is discovery's description of one resource.
type ResourceInfo struct {
	GVR        schema.GroupVersionResource
	Kind       string
	Namespaced bool
	Watchable  bool // it can be listed and watched

	Definition *Definition // of a custom resource; nil if it is not known, and until registry.CRDWatcher has been asked
}

const (
	// DiscoveryTTL is how long a resource is taken to exist. discoveryRetry is the time until the
	// next request after one that failed.
	DiscoveryTTL   = 10 * time.Minute
	discoveryRetry = time.Minute
	// missTTL is how long a resource is taken not to exist. A new CustomResourceDefinition is
	// noticed that soon.
	missTTL          = 2 * time.Second
	discoveryTimeout = 10 * time.Second

	// maxUnknownVersions bounds the group versions that are remembered as not existing.
	maxUnknownVersions = 256

	// discoveriesAtOnce bounds the requests under way. After a start, clients ask for dozens of
	// group versions at the same time.
	discoveriesAtOnce = 8
)

// ErrNotFound says that kube-apiserver has no such group version or resource.
var ErrNotFound = errors.New("not found")

// Discovery knows the resources of kube-apiserver. It requests a group version when a client first
// asks for it, with the proxy's own identity, and never twice at a time. It requests only group
// versions that kube-apiserver has; see servedVersions. Its methods may be called from any
// goroutine.
type Discovery struct {
	upstream auth.APIServer
	log      *slog.Logger
	calls    remember.Coalescer[schema.GroupVersion, error]
	served   servedVersions
	asking   semaphore.Semaphore // acquired for each request

	mu       sync.Mutex
	versions map[schema.GroupVersion]*versionInfo
}

// versionInfo is what is known of one group version. It is immutable.
type versionInfo struct {
	resources map[string]ResourceInfo // nil if none is known to exist
	asked     time.Time               // a resource that is not in resources is a miss until missTTL later
	expires   time.Time               // a resource that is in resources is a hit until then
	failing   bool                    // the last request failed
}

func NewDiscovery(upstream auth.APIServer, guard *exchange.Guard) *Discovery {
	return &Discovery{
		upstream: upstream,
		log:      guard.Log,
		calls:    remember.Coalescer[schema.GroupVersion, error]{Guard: guard},
		served:   servedVersions{calls: remember.Coalescer[struct{}, error]{Guard: guard}},
		asking:   semaphore.New(discoveriesAtOnce),
		versions: make(map[schema.GroupVersion]*versionInfo),
	}
}

// Lookup returns what is known of a resource, and asks kube-apiserver if need be. It reports false
// if there is no such resource, and if kube-apiserver does not answer before ctx ends. A known
// resource exists until kube-apiserver says otherwise: a kube-apiserver that is down removes none.
func (d *Discovery) Lookup(ctx context.Context, gvr schema.GroupVersionResource) (ResourceInfo, bool) {
	info, found, current := d.known(gvr)
	if current || !found && !d.serves(ctx, gvr.GroupVersion()) {
		return info, found
	}
	err := d.refresh(ctx, gvr.GroupVersion())
	if found && errors.Is(err, context.DeadlineExceeded) { // the next read need not wait as long
		d.remember(gvr.GroupVersion(), nil, err)
	}
	info, found, _ = d.known(gvr)
	return info, found
}

// Unclear reports whether it is not known if there is a resource that Lookup has just not found,
// because kube-apiserver has not answered. It asks nothing.
func (d *Discovery) Unclear(gvr schema.GroupVersionResource) bool {
	gv := gvr.GroupVersion()
	d.mu.Lock()
	defer d.mu.Unlock()
	if v := d.versions[gv]; v != nil {
		_, found := v.resources[gvr.Resource]
		return v.failing && !found
	}
	return gv == coreVersion || !d.served.listed()
}

// Forget makes the next Lookup in gv ask again.
func (d *Discovery) Forget(gv schema.GroupVersion) {
	d.served.doubt()
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.versions, gv)
}

// known returns what is known of a resource, and whether that is current.
func (d *Discovery) known(gvr schema.GroupVersionResource) (info ResourceInfo, found, current bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	v := d.versions[gvr.GroupVersion()]
	if v == nil {
		return ResourceInfo{}, false, false
	}
	info, found = v.resources[gvr.Resource]
	if found {
		return info, true, time.Now().Before(v.expires)
	}
	return info, false, time.Since(v.asked) < missTTL
}

// refresh requests gv and remembers the answer.
func (d *Discovery) refresh(ctx context.Context, gv schema.GroupVersion) error {
	err, ok := d.calls.Do(ctx, gv, discoveryTimeout, func(ctx context.Context) error {
		resources, err := d.fetch(ctx, gv)
		if ctx.Err() != context.Canceled { // nobody waits any longer
			d.remember(gv, resources, err)
		}
		return err
	})
	if !ok {
		return cmp.Or(ctx.Err(), exchange.ErrPanicked)
	}
	return err
}

func (d *Discovery) remember(gv schema.GroupVersion, resources map[string]ResourceInfo, err error) {
	now := time.Now()
	v := &versionInfo{resources: resources, asked: now, expires: now.Add(DiscoveryTTL)}

	d.mu.Lock()
	defer d.mu.Unlock()
	old := d.versions[gv]
	if old == nil {
		old = &versionInfo{}
	}
	switch {
	case errors.Is(err, ErrNotFound):
		v.resources = nil
	case err != nil:
		v.resources, v.expires, v.failing = old.resources, now.Add(discoveryRetry), true
		if !old.failing && old.resources != nil {
			d.log.Warn("Discovery of a known API version stopped working", "groupVersion", gv.String(), "err", err)
		}
	case old.failing && old.resources != nil:
		d.log.Info("Discovery of a known API version worked again", "groupVersion", gv.String())
	}
	if v.resources == nil && !d.makeRoomLocked(now) {
		delete(d.versions, gv)
		return
	}
	d.versions[gv] = v
}

// makeRoomLocked reports whether one more unknown group version can be remembered. It forgets those
// that have expired.
func (d *Discovery) makeRoomLocked(now time.Time) bool {
	unknown := 0
	for gv, v := range d.versions {
		switch {
		case v.resources != nil:
		case now.Sub(v.asked) >= missTTL:
			delete(d.versions, gv)
		default:
			unknown++
		}
	}
	return unknown < maxUnknownVersions
}

// fetch requests the resources of gv. The error is ErrNotFound if kube-apiserver has no such group
// version.
func (d *Discovery) fetch(ctx context.Context, gv schema.GroupVersion) (map[string]ResourceInfo, error) {
	path := "/apis/" + gv.Group + "/" + gv.Version
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	var list metav1.APIResourceList
	if err := d.get(ctx, path, &list); err != nil {
		return nil, err
	}
	if list.Kind != "APIResourceList" {
		return nil, fmt.Errorf("get %s: got kind %q", path, list.Kind)
	}
	resources := make(map[string]ResourceInfo, len(list.APIResources))
	for _, r := range list.APIResources {
		if strings.Contains(r.Name, "/") {
			continue // a subresource
		}
		resources[r.Name] = ResourceInfo{
			GVR:        gv.WithResource(r.Name),
			Kind:       r.Kind,
			Namespaced: r.Namespaced,
			Watchable:  slices.Contains(r.Verbs, "list") && slices.Contains(r.Verbs, "watch"),
		}
	}
	return resources, nil
}

// get decodes the JSON at path into v.
func (d *Discovery) get(ctx context.Context, path string, v any) error {
	if err := d.asking.Acquire(ctx); err != nil {
		return err
	}
	defer d.asking.Release()
	return ReadOwn(ctx, d.upstream, path, "", v)
}

// Resolve returns the resource that an operator names s. It must be possible to list and watch the
// resource. s is "pods" (of the core group), "deployments.apps" (in the group's preferred version),
// "deployments.v1.apps" or "apps/v1/deployments".
func (d *Discovery) Resolve(ctx context.Context, s string) (schema.GroupVersionResource, error) {
	gvr, err := d.named(ctx, s)
	if err != nil {
		return schema.GroupVersionResource{}, fmt.Errorf("resolve %q: %w", s, err)
	}
	info, ok := d.Lookup(ctx, gvr)
	switch {
	case !ok:
		if err = d.WhyNot(ctx, gvr); err == ErrNotFound { // the version exists
			return schema.GroupVersionResource{}, fmt.Errorf("resolve %q: kube-apiserver has no resource %s in %s: %w",
				s, gvr.Resource, gvr.GroupVersion(), err)
		}
	case !info.Watchable:
		err = errors.New("cannot be listed and watched")
	default:
		return gvr, nil
	}
	return schema.GroupVersionResource{}, fmt.Errorf("resolve %q: %s: %w", s, gvr.GroupVersion(), err)
}

// named parses the spellings of Resolve.
func (d *Discovery) named(ctx context.Context, s string) (gvr schema.GroupVersionResource, err error) {
	parts := strings.Split(s, "/")
	resource, group, dotted := strings.Cut(s, ".")
	switch {
	case len(parts) == 2:
		gvr.Version, gvr.Resource = parts[0], parts[1]
	case len(parts) == 3:
		gvr.Group, gvr.Version, gvr.Resource = parts[0], parts[1], parts[2]
	case len(parts) > 3:
	case !dotted:
		gvr.Version, gvr.Resource = "v1", resource
	default:
		gvr.Group, gvr.Resource = group, resource
		if gvr.Version, err = d.preferredVersion(ctx, group, resource); errors.Is(err, ErrNotFound) {
			if version, group, dotted := strings.Cut(group, "."); dotted && APIVersion(version) {
				gvr.Group, gvr.Version, err = group, version, nil
			}
		}
	}
	if err == nil && (gvr.Version == "" || gvr.Resource == "" || !request.APIName(gvr.Group) || !request.APIName(gvr.Version) || !request.APIName(gvr.Resource)) {
		err = errors.New("want RESOURCE, RESOURCE.GROUP, RESOURCE.VERSION.GROUP or GROUP/VERSION/RESOURCE")
	}
	return gvr, err
}

// APIVersion reports whether s looks like "v1" or "v2beta1", and not like a part of a group's name.
func APIVersion(s string) bool {
	return len(s) >= 2 && s[0] == 'v' && '1' <= s[1] && s[1] <= '9'
}

// preferredVersion returns the version in which a group prefers to serve a resource.
func (d *Discovery) preferredVersion(ctx context.Context, group, resource string) (string, error) {
	if !request.APIName(group) {
		return "", ErrNotFound
	}
	ctx, cancel := context.WithTimeout(ctx, discoveryTimeout)
	defer cancel()
	var g metav1.APIGroup
	if err := d.get(ctx, "/apis/"+group, &g); err != nil {
		return "", err
	}
	versions := []string{g.PreferredVersion.Version}
	for _, v := range g.Versions {
		versions = append(versions, v.Version)
	}
	for _, version := range versions {
		if _, ok := d.Lookup(ctx, schema.GroupVersionResource{Group: group, Version: version, Resource: resource}); ok {
			return version, nil
		}
	}
	return "", fmt.Errorf("%s has no resource %s: %w", group, resource, ErrNotFound)
}

// WhyNot returns the reason why Lookup has just reported false. It asks kube-apiserver again.
func (d *Discovery) WhyNot(ctx context.Context, gvr schema.GroupVersionResource) error {
	if err := d.refresh(ctx, gvr.GroupVersion()); err != nil {
		return err
	}
	if _, found, _ := d.known(gvr); found {
		return errAnswersAgain
	}
	return ErrNotFound
}

// errAnswersAgain says that there is the resource, and that kube-apiserver did not say so at first.
var errAnswersAgain = errors.New("kube-apiserver has only just answered")

// End ends the requests under way and waits for them.
func (d *Discovery) End() {
	d.calls.End()
	d.served.calls.End()
}
