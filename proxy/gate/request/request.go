package request

import (
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
)

// Request is one parsed HTTP request. [Parse] creates it once. Audit, admission, metrics,
// pass-through and caches use it. The fields after Info are set only if a cache can answer the
// request. They contain what the client sent: kube-apiserver's defaults are not applied yet, such
// as the WatchList for some watches from resourceVersion "". A Request owns its memory and is
// immutable once parsed.
type Request struct {
	Info

	Uncacheable Reason // "" if a cache can answer the request

	ResourceVersion      string // "" or a decimal number without leading zeros
	resourceVersionMatch string
	ContinueToken        string
	Page                 Page  // parsed from ContinueToken; lists only
	Limit                int64 // 0 is no limit; never negative
	AllowWatchBookmarks  bool
	SendInitialEvents    *bool // nil if not sent; set on watches only
	// probes is set if another watchfan asks how far upstream is. Scouts and Lane.changesBetween in
	// package lane send such requests.
	probes         bool
	TimeoutSeconds *int64        // nil if not sent; may be negative; used for watches only
	Timeout        time.Duration // 0 if not sent; never negative; get and list only

	Labels    labels.Selector // never nil
	Fields    fields.Selector // never nil; requires the name of a /watch/…/NAME path
	RawLabels string
	RawFields string
	Shard     ShardSelector // lists and watches only

	Accepts []Clause // at least one; see negotiate
	Pretty  bool     // indent JSON regardless of the clause; get and list only
	Gzip    bool     // the client accepts gzip, and can read it

	WebSocket bool // the client asks for the watch as messages of a WebSocket
}

// Scope returns the namespace of the objects that req concerns. "" means all namespaces, or a
// resource that is not namespaced. It returns false if the path does not exist for a resource of
// that scope, such as namespaces/NS/nodes or pods/NAME.
func (req *Request) Scope(namespaced bool) (namespace string, ok bool) {
	switch {
	case namespaced:
		return req.Namespace, req.Namespace != "" || req.Name == ""
	case req.Namespace == "":
		return "", true
	default: // namespaces/NS: for authorization its namespace is NS itself
		return "", req.GVR.Group == "" && req.GVR.Resource == "namespaces" && req.Name == req.Namespace
	}
}

// NamespacePrefix returns the common prefix of the keys in the request's collection.
func (req *Request) NamespacePrefix() string {
	if req.Namespace == "" {
		return ""
	}
	return req.Namespace + "/"
}

// Unserved returns why no cache may answer a request of this kind, "" if one may. This is decided
// before a lane starts for it.
func (req *Request) Unserved() Reason {
	switch {
	case req.probes:
		return Probe // our bookmarks for a quiet resource contain nothing new
	case req.AsTable():
		if req.Sharded() {
			return Form
		}
		return req.unservedTable()
	case req.Verb == "watch" && req.WatchTimeout() < 0:
		return Parameters
	case req.Verb != "watch" && req.ContinueToken != "" && req.SelectorName != "":
		return Parameters // a page of a list that may be one object
	case req.limitedAt() && req.SelectorName != "" && req.View == nil && !req.Sharded():
		return Parameters // if it reads one key, kube-apiserver lists the current state, whatever the limit
	}
	return ""
}

// Sharded reports whether the client has sent a shardSelector, understood or not.
func (req *Request) Sharded() bool { return req.Shard.Text != "" || req.Shard.Err != nil }

// WatchTimeout returns how long a watch asks to last; 0 if it does not say. It is negative for a watch
// that ends before it begins. kube-apiserver multiplies timeoutSeconds in the same way: from 292 years
// on the product overflows, and may be anything.
func (req *Request) WatchTimeout() time.Duration {
	if req.TimeoutSeconds == nil {
		return 0
	}
	return time.Duration(*req.TimeoutSeconds) * time.Second
}

// Exact reports whether a list asks for the state at exactly its resourceVersion.
func (req *Request) Exact() bool {
	return req.Verb == "list" && req.ResourceVersion != "0" &&
		(req.resourceVersionMatch == "Exact" || req.Limit > 0 && req.resourceVersionMatch == "")
}

// limitedAt reports whether a list asks for an exact state by its limit alone.
func (req *Request) limitedAt() bool {
	return req.Exact() && req.ResourceVersion != "" && req.resourceVersionMatch == ""
}

// At returns the same list as of exactly resourceVersion rv, which is not 0.
func (req *Request) At(rv uint64) *Request {
	at := *req
	at.ResourceVersion, at.resourceVersionMatch = strconv.FormatUint(rv, 10), "Exact"
	at.Verb = "list"
	return &at
}

// Resumes reports whether the request is a watch that begins behind a resourceVersion, and not with
// initial events.
func (req *Request) Resumes() bool {
	initial := req.SendInitialEvents != nil && *req.SendInitialEvents
	return req.Verb == "watch" && req.ResourceVersion != "" && req.ResourceVersion != "0" && !initial
}

// AnswerTime returns how long the whole answer may take: what the client gives, at most the given time.
func (req *Request) AnswerTime(most time.Duration) time.Duration {
	if req.Timeout <= 0 {
		return most
	}
	return min(most, req.Timeout)
}

// Patience returns how long the request may wait for its answer: nine tenths of the client's own
// timeout, at most the given time. The last tenth is left for the answer itself.
func (req *Request) Patience(most time.Duration) time.Duration {
	own := req.Timeout
	if req.Verb == "watch" && req.TimeoutSeconds != nil {
		own = req.WatchTimeout()
	}
	if own <= 0 {
		return most
	}
	return min(most, own/10*9)
}

// includeObject reads what the rows of Tables have besides their cells, and reports whether
// kube-apiserver accepts the parameter. Other representations ignore it.
func (req *Request) includeObject(query url.Values) bool {
	include := query.Get("includeObject")
	if include == includeMetadata {
		include = ""
	}
	for i := range req.Accepts {
		if req.Accepts[i].Table == "" {
			continue
		}
		if include != "" && include != IncludeObject && include != IncludeNone {
			return false
		}
		req.Accepts[i].Include = strings.Clone(include) // a lane's key outlives the target
	}
	return true
}

// AsTable reports whether the request accepts Tables.
func (req *Request) AsTable() bool {
	return slices.ContainsFunc(req.Accepts, func(c Clause) bool { return c.Table != "" })
}

// unservedTable returns why a list or watch in Tables is not answered here. A lane of Tables keeps no
// rows: they have ages, and are true only when kube-apiserver makes them. So it serves watches that
// begin with the changes after a resourceVersion, as kubectl's do after a list. A list may share
// kube-apiserver's answer with others.
func (req *Request) unservedTable() Reason {
	switch {
	case req.Accepts[0].Table == "":
		return Form
	case req.Verb == "list":
		return ""
	case req.WatchTimeout() < 0, req.SendInitialEvents != nil && !*req.SendInitialEvents:
		return Parameters
	case req.SendInitialEvents != nil, req.ResourceVersion == "", req.ResourceVersion == "0":
		return TableRows
	case req.Accepts[0].Include == IncludeNone:
		return TableNoObjects
	}
	return ""
}
