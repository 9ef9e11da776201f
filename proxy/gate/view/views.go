package view

import (
	"maps"
	"net/http"
	"net/url"
	"path"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"

	"github.com/VictoriaMetrics/metrics"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/proxy/gate/apistatus"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// root is the path of all views.
const root = "/views"

// Views are the views of a server. They may be used from any goroutine.
type Views struct {
	set     *metrics.Set
	unknown *metrics.Counter // requests for other names, rejected
	now     atomic.Pointer[views]
}

// views are immutable.
type views struct {
	byName map[string]*View
	names  string // for messages
}

// New returns the views of a server: the built-in one, and those of opts, which are valid. set gets
// their metrics.
func New(opts *Options, set *metrics.Set) *Views {
	vs := &Views{set: set, unknown: apistatus.Rejections(set, "view_unknown")}
	vs.now.Store(&views{byName: map[string]*View{
		Lean: newView(set, Config{Name: Lean, Drop: []Drop{{Fields: []Field{managedFields}}}})}})
	vs.Replace(opts)
	return vs
}

// Replace makes the views those of opts, which are valid, and the built-in one. A view of the same
// configuration stays. It returns the others: those that are replaced or gone, with what replaces them,
// nil for nothing. Watches in them must end.
func (vs *Views) Replace(opts *Options) (replaced map[*View]*View) {
	before := vs.now.Load().byName
	now := &views{byName: map[string]*View{Lean: before[Lean]}}
	replaced = make(map[*View]*View)
	for _, c := range opts.Views {
		v := before[string(c.Name)]
		if v == nil || !reflect.DeepEqual(v.config, c) {
			was := v
			if v = newView(vs.set, c); was != nil {
				replaced[was] = v
			}
		}
		now.byName[string(c.Name)] = v
	}
	for name, was := range before {
		if now.byName[name] == nil {
			replaced[was] = nil
			was.forget(vs.set)
		}
	}
	now.names = strings.Join(slices.Sorted(maps.Keys(now.byName)), ", ")
	vs.now.Store(now)
	for was := range replaced {
		was.retire()
	}
	return replaced
}

// Get returns the view with a name; nil for none.
func (vs *Views) Get(name string) *View { return vs.now.Load().byName[name] }

// All returns the views by their names. Nobody may change them. vs may be nil, for none.
func (vs *Views) All() map[string]*View {
	if vs == nil {
		return nil
	}
	return vs.now.Load().byName
}

// Enter returns the view in which the request of x is made, and takes the view's prefix from x's
// target. It returns nil for a request outside of all views. refused answers a path below /views
// that is not served; x then keeps its target, which must not be passed through.
func (vs *Views) Enter(x *exchange.Exchange) (v *View, refused *metav1.Status) {
	target, ok := exchange.CutTarget(x.Target)
	if !ok || !belongs(target.Path) {
		return nil, nil
	}
	name, rest, ok := cut(target.Path)
	now := vs.now.Load()
	if v = now.byName[name]; !ok || v == nil {
		vs.unknown.Inc()
		return nil, apistatus.Failure(http.StatusNotFound, metav1.StatusReasonNotFound,
			"no such path in a view: the views of this server are "+now.names+", and each serves the API below "+root+"/NAME")
	}
	before := 0
	if !strings.HasPrefix(x.Target, "/") {
		before = strings.Index(x.Target, "://") + len("://") + len(target.Authority)
	}
	behind := x.Target[before+len(target.Path):]
	x.Asked, x.Target = x.Target, x.Target[:before]+rest+behind
	return v, nil
}

// belongs reports whether a path leads to the views, in any reading: as it is, without its escapes,
// or with dots and empty segments resolved.
func belongs(sent string) bool {
	if !strings.Contains(sent, root[1:]) && strings.IndexByte(sent, '%') < 0 {
		return false
	}
	read, err := url.PathUnescape(sent)
	if err != nil {
		read = sent
	}
	first, _, _ := strings.Cut(strings.TrimLeft(read, "/."), "/")
	clean := path.Clean("/" + read)
	return first == root[1:] || clean == root || strings.HasPrefix(clean, root+"/")
}

// cut splits a path into the name of a view and the path below it. ok is false if the path can be
// read in another way, or leads to a view again.
func cut(sent string) (name, rest string, ok bool) {
	below, ok := strings.CutPrefix(sent, root+"/")
	if !ok {
		return "", "", false
	}
	name, rest, _ = strings.Cut(below, "/")
	rest = "/" + rest
	read, err := url.PathUnescape(rest)
	plain := err == nil && strings.Count(read, "/") == strings.Count(rest, "/") &&
		(read == "/" || path.Clean(read) == strings.TrimSuffix(read, "/"))
	return name, rest, plain && !belongs(rest)
}
