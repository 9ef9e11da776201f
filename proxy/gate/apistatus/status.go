package apistatus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/watchfan/watchfan/framing"
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

// encodeStatus returns st as JSON with a newline, as kube-apiserver writes it.
func encodeStatus(st *metav1.Status) []byte {
	body, err := json.Marshal(st)
	if err != nil {
		panic("encode Status: " + err.Error()) // it holds strings and numbers only
	}
	return append(body, '\n')
}

// encodeStatusFor returns st as the JSON of a response body. If pretty is set, the JSON is indented
// and has no newline at the end.
func encodeStatusFor(st *metav1.Status, pretty bool) []byte {
	body := encodeStatus(st)
	if !pretty {
		return body
	}
	var b bytes.Buffer
	_ = json.Indent(&b, bytes.TrimSuffix(body, []byte("\n")), "", "  ")
	return b.Bytes()
}

// ErrorFrame returns a watch's ERROR event with st as its object, in the given encoding.
func ErrorFrame(encoding framing.Encoding, st *metav1.Status) framing.Frame {
	encode := encodeStatus
	switch encoding {
	case framing.Protobuf:
		encode = encodeStatusProtobuf
	case framing.CBOR:
		encode = encodeStatusCBOR
	}
	return framing.ErrorFrame(encoding, encode(st))
}

// encodeStatusCBOR returns st as kube-apiserver writes it in CBOR. It begins with the tag of
// self-described CBOR (k8s.io/apimachinery/pkg/runtime/serializer/cbor).
func encodeStatusCBOR(st *metav1.Status) []byte {
	body, err := direct.Marshal(st)
	if err != nil {
		panic("encode Status: " + err.Error()) // it holds strings and numbers only
	}
	return append([]byte("\xd9\xd9\xf7"), body...)
}

// encodeStatusProtobuf returns st as kube-apiserver writes it in protobuf: a magic number, then a
// runtime.Unknown (k8s.io/apimachinery/pkg/runtime/serializer/protobuf).
func encodeStatusProtobuf(st *metav1.Status) []byte {
	raw, err := st.Marshal()
	if err != nil {
		panic("encode Status: " + err.Error()) // it holds strings and numbers only
	}
	unknown := runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: st.APIVersion, Kind: st.Kind}, Raw: raw}
	body, err := unknown.Marshal()
	if err != nil {
		panic("encode Status: " + err.Error())
	}
	return append([]byte("k8s\x00"), body...)
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
	r.Body = exchange.BodySlices{encodeStatusFor(st, pretty)}
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
