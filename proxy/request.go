package proxy

import (
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// request is one get, list or watch that may be answered from a cache. Every
// field is as the client sent it: the defaults of kube-apiserver (a watch from
// resourceVersion "" that becomes a WatchList, say) are not applied yet. It owns
// its memory and is immutable once parsed.
type request struct {
	verb         string // "get", "list" or "watch"
	gvr          schema.GroupVersionResource
	namespace    string // from the path; "" is all namespaces, or cluster scope; see scope
	name         string // from the path: always for "get", never for "list"
	selectorName string // the value of a metadata.name= term, what an authorizer sees as the name
	legacyWatch  bool   // the deprecated /watch/ prefix

	resourceVersion      string // "" or a decimal number without leading zeros
	resourceVersionMatch string
	continueToken        string
	page                 page  // what continueToken says, on lists
	limit                int64 // 0 is no limit; never negative
	allowWatchBookmarks  bool
	sendInitialEvents    *bool         // nil if not sent; set on watches only
	probes               bool          // another watchfan asks how far upstream is; see lane.proveByWatch and lane.replay
	timeoutSeconds       *int64        // nil if not sent; may be negative; means something on watches only
	timeout              time.Duration // 0 if not sent; never negative; get and list only

	labels    labels.Selector // never nil
	fields    fields.Selector // never nil; names the object of a /watch/…/NAME path
	rawLabels string
	rawFields string

	accepts []clause // at least one; see negotiate
	pretty  bool     // indent JSON, whatever the clause says; get and list only
	gzip    bool     // the client takes gzip
	auditID string   // the Audit-ID header, or ""
}

// scope returns the namespace whose objects req concerns: "" for all, and for a resource that is not
// namespaced. It reports false if the path does not exist for a resource of that scope, as
// namespaces/NS/nodes and pods/NAME.
func (req *request) scope(namespaced bool) (namespace string, ok bool) {
	switch {
	case namespaced:
		return req.namespace, req.namespace != "" || req.name == ""
	case req.namespace == "":
		return "", true
	default: // namespaces/NS itself, which carries its own namespace for authorization
		return "", req.gvr.Group == "" && req.gvr.Resource == "namespaces" && req.name == req.namespace
	}
}

// namespacePrefix returns what the keys of the request's collection begin with.
func (req *request) namespacePrefix() string {
	if req.namespace == "" {
		return ""
	}
	return req.namespace + "/"
}

// served reports whether the request is of a kind that may be answered from a cache. This is decided
// before a lane is started for it.
func (req *request) served() bool {
	switch {
	case req.probes:
		return false // our bookmarks of a quiet resource would tell it nothing new
	case req.verb == "watch":
		return req.timeoutSeconds == nil || *req.timeoutSeconds >= 0 // a negative one ends the watch before it begins
	case req.continueToken != "" && req.selectorName != "":
		return false // a page of what may be one object
	}
	return true
}

// exact reports whether a list wants the state as of its resourceVersion and no other.
func (req *request) exact() bool {
	return req.verb == "list" && req.resourceVersion != "0" &&
		(req.resourceVersionMatch == "Exact" || req.limit > 0 && req.resourceVersionMatch == "")
}

// patience is how long the request may wait before it is answered: the client's own timeout less the time to answer, at
// most the given time.
func (req *request) patience(most time.Duration) time.Duration {
	own := req.timeout
	if req.verb == "watch" && req.timeoutSeconds != nil {
		own = time.Duration(min(*req.timeoutSeconds, int64(most/time.Second)*2)) * time.Second
	}
	if own <= 0 {
		return most
	}
	return min(most, own/10*9)
}
