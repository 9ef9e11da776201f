package audit

import (
	"bytes"
	"encoding/json"
	"net"
	"net/http"
	"net/url"
	"time"

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

// Annotations of an audit event. The first two are kube-apiserver's.
const (
	decisionAnnotation     = "authorization.k8s.io/decision"
	reasonAnnotation       = "authorization.k8s.io/reason"
	endedBecauseAnnotation = "watchfan.io/ended-because"
	revokedAnnotation      = "watchfan.io/revoked-because"
	userUnknownAnnotation  = "watchfan.io/user-unknown"
	passedAnnotation       = "watchfan.io/passed-through"
)

// Event is an audit event before it is encoded as a line. It does not change once it is queued.
type Event struct {
	at, received   time.Time
	stage          string
	auditID        string
	uri            string
	verb           string
	object         *auditObject   // nil if the request concerns no resource
	code           int            // 0 if unknown
	status         *metav1.Status // nil if code is enough
	endedBecause   fanout.Reason
	revokedBecause string
	decision       auth.Decision // allows a read from a cache; otherwise empty
	passed         bool          // passed through; kube-apiserver audits it too

	user         *auth.UserInfo // nil if owner provides the user, or if there is none
	impersonated *auth.UserInfo // the user that user acts as; nil without impersonation
	owner        *auth.Owner    // the user of a token, or the proxy's; nil if user is enough

	userAgent, forwardedFor, realIP string
	remote                          net.Addr
}

// size returns the approximate memory of the event, in bytes.
func (e *Event) size() int {
	const fixed = 512
	n := fixed + len(e.auditID) + len(e.uri) + len(e.userAgent) + len(e.forwardedFor) + len(e.realIP) + len(e.revokedBecause) +
		len(e.decision.Reason()) + e.user.Size() + e.impersonated.Size()
	if e.object != nil {
		n += len(e.object.Namespace) + len(e.object.Name)
	}
	return n
}

// auditLine is the encoded form of an audit.k8s.io/v1 Event, with the field names and the order of
// k8s.io/apiserver pkg/apis/audit/v1.
type auditLine struct {
	Kind                     string            `json:"kind"`
	APIVersion               string            `json:"apiVersion"`
	Level                    string            `json:"level"`
	AuditID                  string            `json:"auditID"`
	Stage                    string            `json:"stage"`
	RequestURI               string            `json:"requestURI"`
	Verb                     string            `json:"verb"`
	User                     auth.UserInfo     `json:"user"`
	ImpersonatedUser         *auth.UserInfo    `json:"impersonatedUser,omitempty"`
	SourceIPs                []string          `json:"sourceIPs,omitempty"`
	UserAgent                string            `json:"userAgent,omitempty"`
	ObjectRef                *auditObject      `json:"objectRef,omitempty"`
	ResponseStatus           *metav1.Status    `json:"responseStatus,omitempty"`
	RequestReceivedTimestamp metav1.MicroTime  `json:"requestReceivedTimestamp"`
	StageTimestamp           metav1.MicroTime  `json:"stageTimestamp"`
	Annotations              map[string]string `json:"annotations,omitempty"`
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
	user, unknown := e.who()
	line := auditLine{
		Kind:                     "Event",
		APIVersion:               "audit.k8s.io/v1",
		Level:                    "Metadata",
		AuditID:                  e.auditID,
		Stage:                    e.stage,
		RequestURI:               pathAndQuery(e.uri),
		Verb:                     e.verb,
		User:                     user,
		ImpersonatedUser:         e.impersonated,
		SourceIPs:                e.sourceIPs(),
		UserAgent:                auth.Truncated(e.userAgent, maxUserAgent),
		ObjectRef:                e.object,
		ResponseStatus:           &metav1.Status{Code: int32(e.code)},
		RequestReceivedTimestamp: metav1.NewMicroTime(e.received),
		StageTimestamp:           metav1.NewMicroTime(e.at),
		Annotations:              make(map[string]string, 3),
	}
	if e.code == 0 {
		line.ResponseStatus = nil
	}
	if e.passed {
		line.Annotations[passedAnnotation] = "true"
	}
	if st := e.status; st != nil {
		line.ResponseStatus = &metav1.Status{Status: st.Status, Message: st.Message, Reason: st.Reason, Details: st.Details, Code: st.Code}
	}
	if e.decision.Allowed() {
		line.Annotations[decisionAnnotation], line.Annotations[reasonAnnotation] = "allow", e.decision.Reason()
	}
	if e.endedBecause != "" {
		line.Annotations[endedBecauseAnnotation] = string(e.endedBecause)
	}
	if e.revokedBecause != "" {
		line.Annotations[revokedAnnotation] = e.revokedBecause
	}
	if unknown != "" {
		line.Annotations[userUnknownAnnotation] = unknown
	}
	buf := bytes.NewBuffer(b)
	if err := json.NewEncoder(buf).Encode(&line); err != nil {
		panic("encode audit event: " + err.Error()) // strings, numbers and times of this century encode
	}
	return buf.Bytes()
}

// who returns the user that made the request, or the reason why the user is unknown.
func (e *Event) who() (user auth.UserInfo, unknown string) {
	u := e.user
	if e.owner != nil {
		u, unknown = e.owner.Wait()
	}
	if u == nil { // unknown, or nobody
		return auth.UserInfo{}, unknown
	}
	return *u, ""
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
