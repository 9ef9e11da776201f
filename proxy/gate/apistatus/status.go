package apistatus

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/VictoriaMetrics/metrics"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/util/uuid"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/base/exposition"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

// Failure returns a failure Status with the fields that kube-apiserver sets in its own errors.
func Failure(code int32, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Message:  message,
		Reason:   reason,
		Code:     code,
	}
}

// Unauthorized returns the Status for a request without a valid credential.
func Unauthorized() *metav1.Status {
	return Failure(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
}

func BadRequest(message string) *metav1.Status {
	return Failure(http.StatusBadRequest, metav1.StatusReasonBadRequest, message)
}

// Refusal returns the Status of a protocol's refusal.
func Refusal(r *exchange.Refusal) *metav1.Status {
	return Failure(int32(r.Code), refusalReasons[r.Code], r.Message)
}

// refusalReasons has the reasons of protocols' refusals. All others have none.
var refusalReasons = map[int]metav1.StatusReason{
	http.StatusBadRequest:          metav1.StatusReasonBadRequest,
	http.StatusMethodNotAllowed:    metav1.StatusReasonMethodNotAllowed,
	http.StatusRequestTimeout:      metav1.StatusReasonTimeout,
	http.StatusInternalServerError: metav1.StatusReasonInternalError,
}

// Refuse makes a protocol's refusal the response of x.
func Refuse(x *exchange.Exchange, r *exchange.Refusal) { Write(x, Refusal(r)) }

// NotFound returns the Status for a GET of an object that does not exist: `pods "web" not found`.
func NotFound(gvr schema.GroupVersionResource, name string) *metav1.Status {
	st := apierrors.NewNotFound(gvr.GroupResource(), name).Status()
	st.Kind, st.APIVersion = "Status", "v1"
	return &st
}

// NoWatchList returns the Status for a watch with sendInitialEvents in kube-apiserver's words without its
// feature gate WatchList. Every client-go that sends the parameter lists at once then
// (k8s.io/client-go/tools/cache/reflector.go).
func NoWatchList() *metav1.Status {
	st := apierrors.NewInvalid(schema.GroupKind{Group: metav1.GroupName, Kind: "ListOptions"}, "", field.ErrorList{
		field.Forbidden(field.NewPath("sendInitialEvents"),
			"sendInitialEvents is forbidden for watch unless the WatchList feature gate is enabled"),
	}).Status()
	st.Kind, st.APIVersion = "Status", "v1"
	return &st
}

// RetryLeast is the shortest Retry-After of a 429, in seconds. RetrySpread is the width of the
// random range above it: clients that arrive together retry at different times.
const RetryLeast, RetrySpread = 5, 11

// TooManyRequests tells a client to retry later. client-go waits for the Retry-After and retries by
// itself.
func TooManyRequests(why string) *metav1.Status {
	st := Failure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "Too many requests, please try again later: "+why)
	st.Details = &metav1.StatusDetails{RetryAfterSeconds: RetryLeast + rand.Int32N(RetrySpread)}
	return st
}

// Busy reports whether an answer's code says that kube-apiserver is busy or ill, and nothing of what was asked.
func Busy(code int) bool {
	return code == http.StatusTooManyRequests || code >= http.StatusInternalServerError
}

// ServiceUnavailable returns the Status for a request that cannot be served at the moment. The
// client may retry after a second.
func ServiceUnavailable(message string) *metav1.Status {
	st := Failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, message)
	st.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return st
}

// Expired returns the Status for a watch whose resourceVersion rv is older than the history. oldest
// is the oldest resourceVersion from which a watch may start.
func Expired(rv, oldest uint64) *metav1.Status {
	return Failure(http.StatusGone, metav1.StatusReasonExpired, fmt.Sprintf("too old resource version: %d (%d)", rv, oldest))
}

// must returns what has been encoded. A Status holds strings and numbers only, so err is nil.
func must(encoded []byte, err error) []byte {
	if err != nil {
		panic("encode Status: " + err.Error())
	}
	return encoded
}

// encode returns st as JSON with a newline, as kube-apiserver writes it. If pretty is set, the JSON is
// indented and has no newline at the end.
func encode(st *metav1.Status, pretty bool) []byte {
	if pretty {
		return must(json.MarshalIndent(st, "", "  "))
	}
	return append(must(json.Marshal(st)), '\n')
}

// ErrorFrame returns a watch's ERROR event with st as its object, in the given encoding: in CBOR after
// the tag of self-described CBOR (k8s.io/apimachinery/pkg/runtime/serializer/cbor), in protobuf as a
// runtime.Unknown after a magic number (k8s.io/apimachinery/pkg/runtime/serializer/protobuf).
func ErrorFrame(encoding framing.Encoding, st *metav1.Status) framing.Frame {
	body := encode(st, false)
	switch encoding {
	case framing.CBOR:
		body = append([]byte("\xd9\xd9\xf7"), must(direct.Marshal(st))...)
	case framing.Protobuf:
		unknown := runtime.Unknown{
			TypeMeta: runtime.TypeMeta{APIVersion: st.APIVersion, Kind: st.Kind},
			Raw:      must(st.Marshal()),
		}
		body = append([]byte("k8s\x00"), must(unknown.Marshal())...)
	}
	return framing.ErrorFrame(encoding, body)
}

// Write makes st the response of x. It keeps x.Response.Close: if the connection was going to close
// after the response, it still closes.
func Write(x *exchange.Exchange, st *metav1.Status) {
	x.Response.Reset()
	fill(&x.Response, st, AuditID(x), PrettyStatus(x))
}

// Response returns st as a response to a request with the given auditID. pretty indents the body.
func Response(st *metav1.Status, auditID string, pretty bool) *exchange.Response {
	r := &exchange.Response{}
	fill(r, st, auditID, pretty)
	return r
}

func fill(r *exchange.Response, st *metav1.Status, auditID string, pretty bool) {
	r.Status = int(st.Code)
	addCommonHeader(r, auditID)
	r.Header.Add("Content-Type", "application/json")
	if st.Details != nil && st.Details.RetryAfterSeconds > 0 {
		r.Header.Add("Retry-After", strconv.Itoa(int(st.Details.RetryAfterSeconds)))
	}
	r.Body = exchange.BodySlices{encode(st, pretty)}
}

// AddCommonHeader adds the header fields that all of kube-apiserver's responses have. It returns
// the Audit-Id.
func AddCommonHeader(x *exchange.Exchange) (auditID string) {
	auditID = AuditID(x)
	addCommonHeader(&x.Response, auditID)
	return auditID
}

func addCommonHeader(r *exchange.Response, auditID string) {
	r.Header.Add("Audit-Id", auditID)
	r.Header.Add("Cache-Control", "no-cache, private")
}

// AuditID returns the request's Audit-Id, or a new one.
func AuditID(x *exchange.Exchange) string {
	if id := x.Header.Get("Audit-Id"); id != "" {
		return strings.Clone(id)
	}
	return string(uuid.NewUUID())
}

// PrettyStatus reports whether the body of a Status should be indented.
func PrettyStatus(x *exchange.Exchange) bool {
	target, _ := exchange.CutTarget(x.Target)
	return Pretty(target.Query, x.Header.Get("Accept"), x.Header.Get("User-Agent"))
}

// Pretty reports whether kube-apiserver indents JSON: the pretty parameter decides, else the Accept
// header, else the User-Agent of a client for human readers (k8s.io/apiserver
// pkg/endpoints/handlers/negotiation, isPrettyPrint). A percent-encoded key does not count, as in
// kube-apiserver.
func Pretty(rawQuery, accept, userAgent string) bool {
	if strings.Contains(rawQuery, "pretty") {
		query, _ := url.ParseQuery(rawQuery) // invalid parameters are left out
		if pretty := query.Get("pretty"); pretty != "" {
			on, err := strconv.ParseBool(pretty)
			return err == nil && on
		}
	}
	return strings.Contains(accept, "pretty=1") ||
		strings.HasPrefix(userAgent, "curl") || strings.HasPrefix(userAgent, "Wget") || strings.HasPrefix(userAgent, "Mozilla/5.0")
}

var rejectedRequests = exposition.Describe("counter", "watchfan_rejected_requests_total",
	"Requests rejected by this proxy, by reason.")

// Rejections returns the counter of a server's requests rejected for one reason, which packages may
// share. set is the server's.
func Rejections(set *metrics.Set, reason string) *metrics.Counter {
	return set.GetOrCreateCounter(rejectedRequests + `{reason="` + reason + `"}`)
}
