package request

import (
	"net/http"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

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
