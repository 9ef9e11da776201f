package proxytest

import (
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"
)

// Kind is the purpose of a request, as kube-apiserver sees it.
type Kind string

// The kinds. All but Client and Other are watchfan's own requests.
const (
	Form      Kind = "form"      // the empty list that tells how lists are written
	List      Kind = "list"      // a list, or a page of one
	WatchList Kind = "watchlist" // the reflector's initial events and what follows
	Watch     Kind = "watch"     // the reflector's watch from a resourceVersion
	Probe     Kind = "probe"     // a list of a namespace that can't exist, for the current resourceVersion
	Short     Kind = "short"     // a watch of a few seconds, for a bookmark or a replay
	Review    Kind = "review"    // a SelfSubjectAccessReview or SubjectAccessReview
	Owner     Kind = "owner"     // a SelfSubjectReview; it is answered by a rule alone
	Client    Kind = "client"    // a client's request, passed through
	Identity  Kind = "identity"  // a get of the namespace kube-system, whose uid is the cluster's
	Other     Kind = "other"     // discovery, health
)

// ClusterUID is the uid of the namespace kube-system, whose path is kubeSystem.
const (
	ClusterUID = "0d3d3c6c-7f5c-4d0e-9a3e-5b7d5a1c2f10"
	kubeSystem = "/api/v1/namespaces/kube-system"
)

// ClientAgent is the User-Agent by which Server recognises a request that watchfan passed through.
const ClientAgent = "proxytest-client"

// Request is a request that the server has received.
type Request struct {
	Kind   Kind
	Method string
	Path   string
	Query  url.Values
	Token  string // the bearer token
	At     time.Time
}

func bearerToken(r *http.Request) string {
	return strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")
}

func kindOf(r *http.Request) Kind {
	q := r.URL.Query()
	watch := q.Get("watch") == "true" || q.Get("watch") == "1"
	seconds, _ := strconv.Atoi(q.Get("timeoutSeconds"))
	switch {
	case r.UserAgent() == ClientAgent:
		return Client
	case strings.HasSuffix(r.URL.Path, "subjectaccessreviews"):
		return Review
	case strings.HasSuffix(r.URL.Path, "/selfsubjectreviews"):
		return Owner
	case r.URL.Path == kubeSystem:
		return Identity
	case strings.HasSuffix(r.URL.Path, "/selfsubjectrulesreviews"):
		return Other // of no use here: it answers 404
	case strings.Count(strings.TrimPrefix(r.URL.Path, "/apis"), "/") < 3:
		return Other
	case watch && q.Get("sendInitialEvents") == "true":
		return WatchList
	case watch && seconds < 60:
		return Short
	case watch:
		return Watch
	case q.Get("fieldSelector") != "":
		return Form
	case strings.Contains(r.URL.Path, "/namespaces/-/"):
		return Probe
	}
	return List
}
