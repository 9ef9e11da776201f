package request

import (
	"net/http"
	"net/url"
	"strings"

	"k8s.io/apimachinery/pkg/api/validate/content"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/gate/view"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Info contains what kube-apiserver reads from any request, cacheable or not: the verb and the
// object (k8s.io/apiserver pkg/endpoints/request/requestinfo.go). Audit, admission, metrics and
// pass-through use it.
type Info struct {
	Method       string
	Verb         string // "get", "list", "watch", "create" …; the method in lower case if IsResource is false
	IsResource   bool   // the path leads to a resource; if not, the fields below are empty
	GVR          schema.GroupVersionResource
	Subresource  string // "" for none
	Namespace    string // from the path; "" is all namespaces, or cluster scope; see [Request.Scope]
	Name         string // from the path; empty for a list
	SelectorName string // the value of a metadata.name= term; authorizers see it as the name

	// LargeSelectors is set if kube-apiserver must evaluate selectors of more than [MaxRequirements]
	// requirements or values, or of more than [MaxSelectorBytes].
	LargeSelectors bool

	Seed string     // of a sibling's request, see [SeedHeader]; "" for all others
	View *view.View // in which the request is made, set behind Parse; nil for none

	Ruled bool // a rule of the configuration names the view, and not the path

	LegacyWatch    bool // the path has the deprecated /watch/ prefix
	watchParameter bool
}

// ObjectName returns the object's name as authorizers and the audit log see it: from the path, else
// from the field selector.
func (i *Info) ObjectName() string {
	if i.Name == "" {
		return i.SelectorName
	}
	return i.Name
}

// IsWatch reports whether kube-apiserver answers the request with a watch.
func (i *Info) IsWatch() bool { return i.Verb == "watch" && i.Method == http.MethodGet }

// MayLast reports whether the response may last as long as the client stays: a watch, a log, or any
// request to a proxied pod, service or node. The watch parameter counts even where kube-apiserver
// itself answers a get: an aggregated API server may answer with a watch.
func (i *Info) MayLast() bool {
	return i.Verb == "watch" || i.Verb == "proxy" || i.Subresource == "log" || i.Subresource == "proxy" || i.watchParameter
}

// MetricVerb returns get, list or watch for a read of objects, as in kube-apiserver's metrics. For
// all others it returns other.
func (i *Info) MetricVerb() string {
	if !i.IsResource || i.Method != http.MethodGet || i.Subresource != "" || i.Verb != "get" && i.Verb != "list" && i.Verb != "watch" {
		return "other"
	}
	return i.Verb
}

// methodVerbs maps methods to their verbs on one object. Without a name, a get becomes a list or a
// watch, and a delete becomes a deletecollection.
var methodVerbs = map[string]string{
	http.MethodGet:    "get",
	http.MethodHead:   "get",
	http.MethodPost:   "create",
	http.MethodPut:    "update",
	http.MethodPatch:  "patch",
	http.MethodDelete: "delete",
}

// mostSegments is how many segments of a path are told apart: the nine that are read, and the rest. A path
// may have a million of them, and the client is not known yet.
const mostSegments = 10

// readPath parses paths of the forms
//
//	/api/V/…   /apis/G/V/…   then   [watch/|proxy/] [namespaces/NS/] RESOURCE [/NAME [/SUBRESOURCE …]]
//
// If the path ends with namespaces/NS, NS is both the namespace and the name. parts contains the
// segments after V, watch and proxy. Behind SUBRESOURCE, several may be one.
func (i *Info) readPath(path string) (parts []string) {
	parts = strings.SplitN(strings.Trim(path, "/"), "/", mostSegments)
	switch {
	case parts[0] == "api" && len(parts) >= 3:
		i.GVR.Version, parts = parts[1], parts[2:]
	case parts[0] == "apis" && len(parts) >= 4:
		i.GVR.Group, i.GVR.Version, parts = parts[1], parts[2], parts[3:]
	default:
		i.Verb = strings.ToLower(i.Method)
		return nil
	}
	i.IsResource = true
	i.Verb = methodVerbs[i.Method]
	if (parts[0] == "watch" || parts[0] == "proxy") && len(parts) > 1 {
		i.Verb, i.LegacyWatch = parts[0], parts[0] == "watch"
		parts = parts[1:]
	}
	rest := parts
	if rest[0] == "namespaces" && len(rest) > 1 {
		i.Namespace = rest[1]
		if len(rest) > 2 && rest[2] != "status" && rest[2] != "finalize" {
			rest = rest[2:]
		}
	}
	i.GVR.Resource = rest[0]
	if len(rest) > 1 {
		i.Name = rest[1]
	}
	if len(rest) > 2 && i.Verb != "proxy" {
		i.Subresource = rest[2]
	}
	return parts
}

// readQuery distinguishes lists from watches, and deletes from deletecollections.
func (i *Info) readQuery(query url.Values) {
	i.watchParameter = BoolParameter(query, "watch")
	switch {
	case i.Name != "" || !i.IsResource:
	case i.Verb == "delete":
		i.Verb = "deletecollection"
	case i.Verb == "get" && i.watchParameter:
		i.Verb = "watch"
	case i.Verb == "get":
		i.Verb = "list"
	}
}

// readSelector reads the name from the field selector of a list or a watch. A selector of more than
// [MaxSelectorBytes] is not parsed.
func (i *Info) readSelector(query url.Values) {
	selector := query.Get("fieldSelector")
	if i.Name != "" || i.LegacyWatch || i.Verb != "list" && i.Verb != "watch" || selector == "" || len(selector) > MaxSelectorBytes {
		return
	}
	if terms, err := fields.ParseSelector(selector); err == nil {
		i.SelectorName = nameIn(terms)
	}
}

// nameIn returns the name that selector requires. It returns "" if selector requires no name, or
// one that no object can have.
func nameIn(selector fields.Selector) string {
	name, exact := selector.RequiresExactMatch(metav1.ObjectNameField)
	if !exact || len(content.IsPathSegmentName(name)) > 0 {
		return ""
	}
	return name
}

// reviews are the resources whose creation stores nothing: kube-apiserver answers a question.
// Clients ask what they themselves may do. The authentication and authorization filters of managers
// ask about others.
var reviews = map[schema.GroupResource]bool{
	{Group: "authorization.k8s.io", Resource: "selfsubjectaccessreviews"}:  true,
	{Group: "authorization.k8s.io", Resource: "selfsubjectrulesreviews"}:   true,
	{Group: "authorization.k8s.io", Resource: "subjectaccessreviews"}:      true,
	{Group: "authorization.k8s.io", Resource: "localsubjectaccessreviews"}: true,
	{Group: "authentication.k8s.io", Resource: "selfsubjectreviews"}:       true,
	{Group: "authentication.k8s.io", Resource: "tokenreviews"}:             true,
}

// connects are the subresources that open a connection to a pod, a service or a node, with any
// method.
var connects = map[string]bool{"proxy": true, "exec": true, "attach": true, "portforward": true}

// OnlyReads reports whether the request of x changes nothing, and opens no connection to a program
// of the cluster. A review is a read. An upgrade is one only for a watch or a log.
func (i *Info) OnlyReads(x *exchange.Exchange) bool {
	switch i.Method {
	case http.MethodGet, http.MethodHead, http.MethodOptions:
	case http.MethodPost:
		return i.Verb == "create" && i.Name == "" && reviews[i.GVR.GroupResource()]
	default:
		return false
	}
	if i.Verb == "proxy" || connects[i.Subresource] {
		return false
	}
	upgrade := UpgradeType(x)
	return upgrade == "" || strings.EqualFold(upgrade, "h2c") || i.IsWatch() || i.Subresource == "log"
}

// ResourceText returns a resource's name in the form of logs and messages: apps/v1/deployments.
func ResourceText(gvr schema.GroupVersionResource) string {
	if gvr.Group == "" {
		return gvr.Version + "/" + gvr.Resource
	}
	return gvr.Group + "/" + gvr.Version + "/" + gvr.Resource
}
