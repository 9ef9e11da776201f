package proxytest

import (
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
)

// Call is one request that a rule answers. It must not be used after the rule has returned.
type Call struct {
	Kind  Kind
	Query url.Values
	W     http.ResponseWriter
	R     *http.Request
	s     *Server
}

// Serve answers as without a rule.
func (c *Call) Serve() {
	if collection, namespace := c.s.collectionAt(c.R.URL.Path); collection != nil {
		if w := c.Query.Get("watch"); w == "true" || w == "1" {
			collection.watch(c, namespace)
		} else {
			collection.list(c, namespace)
		}
		return
	}
	switch {
	case c.Kind == Review:
		body, _ := io.ReadAll(c.R.Body)
		c.s.mu.Lock()
		allow := c.s.allow
		c.s.mu.Unlock()
		kind := "SubjectAccessReview"
		if strings.HasSuffix(c.R.URL.Path, "/selfsubjectaccessreviews") {
			kind = "Self" + kind
		}
		allowed := allow(bearerToken(c.R), string(body))
		c.W.WriteHeader(http.StatusCreated)
		fmt.Fprintf(c.W, `{"kind":%q,"apiVersion":"authorization.k8s.io/v1","status":{"allowed":%t}}`, kind, allowed)
	case c.R.URL.Path == kubeSystem:
		fmt.Fprintf(c.W, `{"kind":"Namespace","apiVersion":"v1","metadata":{"name":"kube-system","uid":%q}}`, ClusterUID)
	case c.R.URL.Path == "/readyz", c.R.URL.Path == "/livez":
		io.WriteString(c.W, "ok")
	default:
		c.discovery()
	}
}

func (c *Call) discovery() {
	if c.R.URL.Path == "/apis" {
		c.groups()
		return
	}
	var resources []string
	for _, collection := range c.s.collections {
		r := collection.Resource
		if strings.TrimSuffix(r.Path(), "/"+r.Name) == c.R.URL.Path {
			resources = append(resources,
				fmt.Sprintf(`{"name":%q,"namespaced":true,"kind":%q,"verbs":["get","list","watch"]}`, r.Name, r.Kind))
		}
	}
	if len(resources) == 0 {
		c.Fail(http.StatusNotFound, "NotFound", "the server could not find the requested resource", 0)
		return
	}
	fmt.Fprintf(c.W, `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":"v1","resources":[%s]}`,
		strings.Join(resources, ","))
}

// groups answers with the API groups, each in one version.
func (c *Call) groups() {
	var groups []string
	c.s.mu.Lock()
	defer c.s.mu.Unlock()
	for _, collection := range c.s.collections {
		if r := collection.Resource; r.Group != "" {
			groups = append(groups, fmt.Sprintf(`{"name":%q,"versions":[{"groupVersion":%q,"version":%q}]}`, r.Group,
				r.apiVersion(), r.Version))
		}
	}
	fmt.Fprintf(c.W, `{"kind":"APIGroupList","apiVersion":"v1","groups":[%s]}`, strings.Join(groups, ","))
}

// collectionAt returns the collection and the namespace of a path.
func (s *Server) collectionAt(path string) (c *Collection, namespace string) {
	before, rest, ok := strings.Cut(path, "/namespaces/")
	if ok {
		ns, name, _ := strings.Cut(rest, "/")
		return s.collections[before+"/"+name], ns
	}
	return s.collections[path], ""
}

// Fail answers with a Status. If retryAfter is positive, the client is told to wait that many
// seconds.
func (c *Call) Fail(code int, reason, message string, retryAfter int) {
	c.W.Header().Set("Content-Type", "application/json")
	if retryAfter > 0 {
		c.W.Header().Set("Retry-After", strconv.Itoa(retryAfter))
	}
	c.W.WriteHeader(code)
	io.WriteString(c.W, status(code, reason, message, retryAfter)+"\n")
}

// Write answers with 200 and the given bytes, and flushes each part.
func (c *Call) Write(parts ...string) {
	c.W.Header().Set("Content-Type", "application/json")
	for _, p := range parts {
		io.WriteString(c.W, p)
		c.W.(http.Flusher).Flush()
	}
}

// Hang does not answer until the client gives up.
func (c *Call) Hang() { <-c.R.Context().Done() }

// Abort breaks the connection.
func (c *Call) Abort() { panic(http.ErrAbortHandler) }

func status(code int, reason, message string, retryAfter int) string {
	details := ""
	if retryAfter > 0 {
		details = fmt.Sprintf(`,"details":{"retryAfterSeconds":%d}`, retryAfter)
	}
	return fmt.Sprintf(`{"kind":"Status","apiVersion":"v1","metadata":{},"status":"Failure","message":%q,"reason":%q%s,"code":%d}`,
		message, reason, details, code)
}

// ErrorEvent returns the line of an ERROR event.
func ErrorEvent(code int, reason, message string) string {
	return `{"type":"ERROR","object":` + status(code, reason, message, 0) + "}\n"
}
