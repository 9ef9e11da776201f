package fallback

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/netip"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/pass/upstream"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const (
	// manager is the name under which slices are managed. The EndpointSlice controller has another.
	manager = "fallback.watchfan.io"
	// portName is that of the port of the Service, which the chart names so.
	portName = "https"
	// applyEvery is the time between two applications of a slice, which change nothing unless somebody
	// has changed the slice. applyAgain is that behind one that has failed.
	applyEvery, applyAgain = time.Minute, 2 * time.Second
)

func slicesPath(namespace string) string {
	return "/apis/discovery.k8s.io/v1/namespaces/" + namespace + "/endpointslices"
}

// serviceReady reports whether the Service has a ready endpoint. The list may be from the API server's
// cache. An endpoint without the condition is ready, as for kube-proxy.
func (f *Fallback) serviceReady(ctx context.Context) (bool, error) {
	namespace, name := f.service()
	var list discoveryv1.EndpointSliceList
	if err := upstream.ReadOwn(ctx, f.upstream, slicesPath(namespace),
		upstream.Query("labelSelector", discoveryv1.LabelServiceName+"="+name, "resourceVersion", "0"), &list); err != nil {
		return false, err
	}
	for _, s := range list.Items {
		for _, e := range s.Endpoints {
			if ready := e.Conditions.Ready; ready == nil || *ready {
				return true, nil
			}
		}
	}
	return false, nil
}

// keepSlices keeps the replica's slices until ctx ends, and empties them then.
func (f *Fallback) keepSlices(ctx context.Context) {
	failed := ""
	for wait := time.Duration(0); exchange.Sleep(ctx, wait); {
		wait = applyEvery
		err := f.applySlices(ctx, true)
		switch {
		case err == nil && (!f.published.Swap(true) || failed != ""):
			failed = ""
			f.log.Info("Became an endpoint for when no other is ready", "service", f.opts.FallbackFor,
				"addresses", f.opts.FallbackAddresses)
		case err != nil && ctx.Err() == nil:
			if wait = applyAgain; err.Error() != failed {
				f.log.Warn("Could not become an endpoint", "service", f.opts.FallbackFor, "err", err)
			}
			failed = err.Error()
		}
	}
	ending, cancel := context.WithTimeout(context.WithoutCancel(ctx), lookFor)
	defer cancel()
	if err := f.applySlices(ending, false); err != nil {
		f.log.Warn("Remained an endpoint until the pod is deleted", "service", f.opts.FallbackFor, "err", err)
	}
}

// applySlices applies a slice for each family of addresses, with the replica's endpoint or without.
func (f *Fallback) applySlices(ctx context.Context, serving bool) error {
	done := make(map[discoveryv1.AddressType]bool)
	for _, text := range f.opts.FallbackAddresses {
		address := netip.MustParseAddr(text) // Options.AddTo has checked it
		family := discoveryv1.AddressTypeIPv4
		if address.Is6() {
			family = discoveryv1.AddressTypeIPv6
		}
		if done[family] {
			continue
		}
		done[family] = true
		if err := f.apply(ctx, f.slice(family, text, serving)); err != nil {
			return err
		}
	}
	return nil
}

// slice returns the replica's slice for a family of addresses.
func (f *Fallback) slice(family discoveryv1.AddressType, address string, serving bool) *discoveryv1.EndpointSlice {
	namespace, service := f.service()
	pod := strings.Split(f.opts.FallbackPod, "/")
	s := &discoveryv1.EndpointSlice{
		TypeMeta: metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSlice"},
		ObjectMeta: metav1.ObjectMeta{
			Name: pod[0] + "-" + strings.ToLower(string(family)), Namespace: namespace,
			Labels: map[string]string{discoveryv1.LabelServiceName: service, discoveryv1.LabelManagedBy: manager},
			OwnerReferences: []metav1.OwnerReference{
				{APIVersion: "v1", Kind: "Pod", Name: pod[0], UID: types.UID(pod[1])}},
		},
		AddressType: family,
		Endpoints:   []discoveryv1.Endpoint{},
		Ports:       []discoveryv1.EndpointPort{{Name: new(portName), Port: new(int32(f.port)), Protocol: new(corev1.ProtocolTCP)}},
	}
	if serving {
		s.Endpoints = []discoveryv1.Endpoint{{
			Addresses:  []string{address},
			Conditions: discoveryv1.EndpointConditions{Ready: new(false), Serving: new(true), Terminating: new(true)},
			NodeName:   &pod[2],
			TargetRef:  &corev1.ObjectReference{Kind: "Pod", Namespace: namespace, Name: pod[0], UID: types.UID(pod[1])},
		}}
	}
	return s
}

// apply creates a slice, or makes it what it should be, by server-side apply. This is the only write
// of watchfan in its own name.
func (f *Fallback) apply(ctx context.Context, s *discoveryv1.EndpointSlice) error {
	body, err := json.Marshal(s)
	if err != nil {
		return err
	}
	req := (&http.Request{
		Method: http.MethodPatch,
		URL:    f.upstream.URL(slicesPath(s.Namespace)+"/"+s.Name, upstream.Query("fieldManager", manager, "force", "true")),
		Header: http.Header{"Accept": {"application/json"}, "Content-Type": {"application/apply-patch+yaml"}},
		Body:   io.NopCloser(bytes.NewReader(body)), ContentLength: int64(len(body)),
	}).WithContext(ctx)
	resp, err := f.upstream.DoAs(auth.Identity{Kind: auth.KindOwn}, req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	if resp.StatusCode/100 != 2 {
		var st metav1.Status
		_ = json.NewDecoder(io.LimitReader(resp.Body, 64<<10)).Decode(&st)
		return fmt.Errorf("apply endpointslice %s: %s: %s", s.Name, resp.Status, st.Message)
	}
	return nil
}
