package fallback

import (
	"cmp"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strings"

	"github.com/watchfan/watchfan/proxy/base/option"
)

// Options make a watchfan a fall-back.
type Options struct {
	FallbackFor       string   // a Service, or the URL of the /readyz of the watchfan on this host; "" for none
	FallbackPod       string   // NAME/UID/NODE; for a Service only
	FallbackAddresses []string // of that pod; the first of each family is published
	FallbackWatchRate int      // watches that start in a second
}

// AddTo adds the options to a table.
func (o *Options) AddTo(t *option.Table) {
	t.Group("Fallback")
	t.String(&o.FallbackFor, "fallback-for", "", "`NAMESPACE/NAME` of the Service of other watchfans, or URL of the "+
		"/readyz of the one on this host: cache nothing, and answer while they do not (default: no fall-back)", target)
	t.String(&o.FallbackPod, "fallback-pod", "",
		"`NAME/UID/NODE` of the pod of this process, for its endpoint of the Service", pod)
	t.Strings(&o.FallbackAddresses, "fallback-addresses",
		"`IPS` of the pod of this process, for its endpoints of the Service", address)
	t.Int(&o.FallbackWatchRate, "fallback-watch-rate", 200,
		"`NUMBER` of watches that a fall-back lets start at kube-apiserver in a second", option.AtLeast(1))
}

// On reports whether the watchfan is a fall-back.
func (o *Options) On() bool { return o.FallbackFor != "" }

// Local reports whether it is the fall-back of a watchfan on this host.
func (o *Options) Local() bool { return strings.Contains(o.FallbackFor, "://") }

// target is the check of what a fall-back is for.
func target(s string) string {
	if u, err := url.Parse(s); err == nil && u.Scheme == "http" && net.ParseIP(u.Hostname()).IsLoopback() {
		return ""
	}
	if parts := strings.Split(s, "/"); s != "" && (len(parts) != 2 || parts[0] == "" || parts[1] == "") {
		return "is neither: give the Service as watchfan/watchfan, or a URL as http://127.0.0.1:8002/readyz"
	}
	return ""
}

// pod is the check of a pod.
func pod(s string) string {
	if parts := strings.Split(s, "/"); s != "" && (len(parts) != 3 || slices.Contains(parts, "")) {
		return "is no pod: give its name, its uid and its node, with a slash between them"
	}
	return ""
}

// address is the check of an IP address.
func address(s string) string {
	if _, err := netip.ParseAddr(s); err != nil {
		return "is no IP address: give those of status.podIPs"
	}
	return ""
}

// Check reports options that do not go together. port is the secure port, admin the address of the admin port,
// and resident says that resources are to be cached from the start.
func (o *Options) Check(t *option.Table, port int, admin string, resident bool) error {
	named := t.Named("fallback-for")
	switch {
	case !o.On():
		return nil
	case resident:
		return fmt.Errorf("%s caches nothing, so %s can't be given with it", named, t.Named("resident-resources"))
	case port == 0 || port < 0 && o.Local():
		return fmt.Errorf("%s needs a %s that is known to clients: give its number", named, t.Named("secure-port"))
	case o.asks(admin):
		return fmt.Errorf("%s leads to the fall-back itself, which would take the place of the other watchfan's %s: "+
			"give another one, or 0 for off", t.Given("fallback-for", o.FallbackFor), t.Named("admin-port"))
	case !o.Local() && (o.FallbackPod == "" || len(o.FallbackAddresses) == 0):
		return fmt.Errorf("%s is a Service, so it needs %s and %s: give what the pod's downward API says", named,
			t.Named("fallback-pod"), t.Named("fallback-addresses"))
	}
	return nil
}

// asks reports whether the URL leads to an address that is listened on.
func (o *Options) asks(address string) bool {
	u, err := url.Parse(o.FallbackFor)
	host, port, failed := net.SplitHostPort(address)
	if err != nil || failed != nil || !o.Local() || cmp.Or(u.Port(), "80") != port {
		return false
	}
	ip := net.ParseIP(host)
	return ip.IsUnspecified() || ip.Equal(net.ParseIP(u.Hostname()))
}
