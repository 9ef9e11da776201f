package audit

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	utilnet "k8s.io/apimachinery/pkg/util/net"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/gate/auth"
	"github.com/watchfan/watchfan/proxy/gate/request"
)

// Stages of an audit event.
const (
	stageReceived = "RequestReceived"
	stageStarted  = "ResponseStarted"
	stageComplete = "ResponseComplete"
)

// Event is an Event of audit.k8s.io/v1 before it is encoded as a line, with the field names and the
// order of k8s.io/apiserver pkg/apis/audit/v1. It does not change once it is queued.
type Event struct {
	AuditID                  string            `json:"auditID"`
	Stage                    string            `json:"stage"`
	RequestURI               string            `json:"requestURI"`
	Verb                     string            `json:"verb"`
	User                     *auth.UserInfo    `json:"user"` // nil if owner provides the user, or if there is none
	ImpersonatedUser         *auth.UserInfo    `json:"impersonatedUser,omitempty"`
	SourceIPs                []string          `json:"sourceIPs,omitempty"` // appendLine sets it
	UserAgent                string            `json:"userAgent,omitempty"`
	ObjectRef                *auditObject      `json:"objectRef,omitempty"`      // nil if the request concerns no resource
	ResponseStatus           *metav1.Status    `json:"responseStatus,omitempty"` // nil if code is enough
	RequestReceivedTimestamp metav1.MicroTime  `json:"requestReceivedTimestamp"`
	StageTimestamp           metav1.MicroTime  `json:"stageTimestamp"`
	Annotations              map[string]string `json:"annotations,omitempty"` // appendLine sets it

	code           int // of the response; 0 if unknown
	endedBecause   fanout.Reason
	revokedBecause string
	reason         string      // why a read from a cache is allowed
	reviews        []string    // auditIDs of the reviews that allow it, and the client to act as another
	allowed        bool        // it is such a read
	passed         bool        // passed through; kube-apiserver audits it too
	owner          *auth.Owner // the user of a token, or the proxy's; nil if User is enough

	forwardedFor, realIP string
	remote               net.Addr
}

// size returns the approximate memory of the event, in bytes.
func (e *Event) size() int {
	const fixed = 512
	n := fixed + len(e.AuditID) + len(e.RequestURI) + len(e.Verb) + len(e.UserAgent) + len(e.forwardedFor) + len(e.realIP) +
		len(e.revokedBecause) + len(e.reason) + e.User.Size() + e.ImpersonatedUser.Size()
	if o := e.ObjectRef; o != nil {
		n += len(o.Resource) + len(o.Namespace) + len(o.Name) + len(o.APIGroup) + len(o.APIVersion) + len(o.Subresource)
	}
	for _, id := range e.reviews {
		n += len(id)
	}
	if st := e.ResponseStatus; st != nil {
		n += fixed + len(st.Message)
		if st.Details != nil {
			n += len(st.Details.Name)
		}
	}
	return n
}

// usualHead is how long the parts of a request's head are that an event of a usual request keeps.
const usualHead = 4 << 10

// LongHead returns the bytes that the event keeps of a request's head that is longer than usual; 0 of another
// one. The event of an open watch is kept for as long as the watch. e may be nil.
func (e *Event) LongHead() int64 {
	if e == nil {
		return 0
	}
	n := len(e.AuditID) + len(e.RequestURI) + len(e.forwardedFor) + len(e.realIP) // a client may choose its Audit-Id
	if n <= usualHead {
		return 0
	}
	return int64(n)
}

// auditObject is an ObjectReference of audit.k8s.io/v1.
type auditObject struct {
	Resource    string `json:"resource,omitempty"`
	Namespace   string `json:"namespace,omitempty"`
	Name        string `json:"name,omitempty"`
	APIGroup    string `json:"apiGroup,omitempty"`
	APIVersion  string `json:"apiVersion,omitempty"`
	Subresource string `json:"subresource,omitempty"`
}

// appendLine appends the event as one line. It first waits until the owner of the token is known,
// which takes at most auth.ReviewTimeout from the request.
func (e *Event) appendLine(b []byte) []byte {
	line := struct {
		Kind       string `json:"kind"`
		APIVersion string `json:"apiVersion"`
		Level      string `json:"level"`
		Event
	}{"Event", "audit.k8s.io/v1", "Metadata", *e}
	user, unknown := e.who()
	line.User = user
	line.RequestURI = pathAndQuery(e.RequestURI)
	line.SourceIPs = e.sourceIPs()
	if st := e.ResponseStatus; st != nil {
		line.ResponseStatus = &metav1.Status{Status: st.Status, Message: st.Message, Reason: st.Reason, Details: st.Details, Code: st.Code}
	} else if e.code != 0 {
		line.ResponseStatus = &metav1.Status{Code: int32(e.code)}
	}
	line.Annotations = e.annotations(unknown)
	buf := bytes.NewBuffer(b)
	if err := json.NewEncoder(buf).Encode(&line); err != nil {
		panic("encode audit event: " + err.Error()) // strings, numbers and times of this century encode
	}
	return buf.Bytes()
}

// annotations returns the event's annotations. unknown is why its user is unknown.
func (e *Event) annotations(unknown string) map[string]string {
	all := make(map[string]string, 3)
	if e.passed {
		all["watchfan.io/passed-through"] = "true"
	}
	if e.allowed { // as kube-apiserver writes it
		all["authorization.k8s.io/decision"], all["authorization.k8s.io/reason"] = "allow", e.reason
	}
	for name, value := range map[string]string{
		"watchfan.io/ended-because":   string(e.endedBecause),
		"watchfan.io/revoked-because": e.revokedBecause,
		"watchfan.io/review-ids":      strings.Join(e.reviews, ","),
		"watchfan.io/user-unknown":    unknown,
	} {
		if value != "" {
			all[name] = value
		}
	}
	return all
}

// who returns the user that made the request, or an empty one and the reason why the user is unknown.
func (e *Event) who() (user *auth.UserInfo, unknown string) {
	user = e.User
	if e.owner != nil {
		user, unknown = e.owner.Wait()
	}
	if user == nil { // unknown, or nobody
		return &auth.UserInfo{}, unknown
	}
	return user, ""
}

// sourceIPs returns the addresses of X-Forwarded-For, of X-Real-Ip and of the connection. It uses
// kube-apiserver's own function.
func (e *Event) sourceIPs() (ips []string) {
	req := http.Request{RemoteAddr: e.remote.String(), Header: http.Header{"X-Forwarded-For": {e.forwardedFor}, "X-Real-Ip": {e.realIP}}}
	for _, ip := range utilnet.SourceIPs(&req) {
		ips = append(ips, ip.String())
	}
	return ips
}

// maxUserAgent is the limit that kube-apiserver applies to a User-Agent, in bytes.
const maxUserAgent = 1024

// pathAndQuery returns the target of a request line as kube-apiserver writes it. A target contains
// no credential: kube-apiserver accepts none there.
func pathAndQuery(target string) string {
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return target
	}
	return u.RequestURI()
}

// objectOf returns the object that a request concerns, or nil if it concerns none.
func objectOf(req *request.Request) *auditObject {
	if !req.IsResource {
		return nil
	}
	return &auditObject{
		Resource:    req.GVR.Resource,
		Namespace:   req.Namespace,
		Name:        req.ObjectName(),
		APIGroup:    req.GVR.Group,
		APIVersion:  req.GVR.Version,
		Subresource: req.Subresource,
	}
}
