package request

import (
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// Request is what one HTTP request asks for. It is read once, by [Parse], and used by audit,
// admission, metrics, pass-through and caches alike. What follows Info is set only if a cache can
// answer the request, and is as the client sent it: the defaults of kube-apiserver (a watch from
// resourceVersion "" that becomes a WatchList, say) are not applied yet. A Request owns its memory
// and is immutable once parsed.
type Request struct {
	Info

	ResourceVersion      string // "" or a decimal number without leading zeros
	resourceVersionMatch string
	ContinueToken        string
	Page                 Page  // what continueToken says, on lists
	Limit                int64 // 0 is no limit; never negative
	AllowWatchBookmarks  bool
	SendInitialEvents    *bool         // nil if not sent; set on watches only
	probes               bool          // another watchfan asks how far upstream is; see lane.proveByWatch and lane.changesBetween
	TimeoutSeconds       *int64        // nil if not sent; may be negative; means something on watches only
	Timeout              time.Duration // 0 if not sent; never negative; get and list only

	Labels    labels.Selector // never nil
	Fields    fields.Selector // never nil; names the object of a /watch/…/NAME path
	RawLabels string
	RawFields string

	Accepts []Clause // at least one; see negotiate
	Pretty  bool     // indent JSON, whatever the clause says; get and list only
	Gzip    bool     // the client takes gzip
}

// Scope returns the namespace whose objects req concerns: "" for all, and for a resource that is
// not namespaced. It reports false if the path does not exist for a resource of that scope, as
// namespaces/NS/nodes and pods/NAME.
func (req *Request) Scope(namespaced bool) (namespace string, ok bool) {
	switch {
	case namespaced:
		return req.Namespace, req.Namespace != "" || req.Name == ""
	case req.Namespace == "":
		return "", true
	default: // namespaces/NS itself, which carries its own namespace for authorization
		return "", req.GVR.Group == "" && req.GVR.Resource == "namespaces" && req.Name == req.Namespace
	}
}

// NamespacePrefix returns what the keys of the request's collection begin with.
func (req *Request) NamespacePrefix() string {
	if req.Namespace == "" {
		return ""
	}
	return req.Namespace + "/"
}

// Served reports whether the request is of a kind that may be answered from a cache. This is
// decided before a lane is started for it.
func (req *Request) Served() bool {
	switch {
	case req.probes:
		return false // our bookmarks of a quiet resource would tell it nothing new
	case req.Verb == "watch":
		return req.TimeoutSeconds == nil || *req.TimeoutSeconds >= 0 // a negative one ends the watch before it begins
	case req.ContinueToken != "" && req.SelectorName != "":
		return false // a page of what may be one object
	}
	return true
}

// Exact reports whether a list wants the state as of its resourceVersion and no other.
func (req *Request) Exact() bool {
	return req.Verb == "list" && req.ResourceVersion != "0" &&
		(req.resourceVersionMatch == "Exact" || req.Limit > 0 && req.resourceVersionMatch == "")
}

// Patience is how long the request may wait before it is answered: the client's own timeout less
// the time to answer, at most the given time.
func (req *Request) Patience(most time.Duration) time.Duration {
	own := req.Timeout
	if req.Verb == "watch" && req.TimeoutSeconds != nil {
		own = time.Duration(min(*req.TimeoutSeconds, int64(most/time.Second)*2)) * time.Second
	}
	if own <= 0 {
		return most
	}
	return min(most, own/10*9)
}
