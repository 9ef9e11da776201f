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
	"github.com/watchfan/watchfan/proxy/exchange"
)

// Failure returns a Status as kube-apiserver's own errors have it.
func Failure(code int32, reason metav1.StatusReason, message string) *metav1.Status {
	return &metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure,
		Message:  message,
		Reason:   reason,
		Code:     code,
	}
}

// Unauthorized answers a request that names nobody.
func Unauthorized() *metav1.Status {
	return Failure(http.StatusUnauthorized, metav1.StatusReasonUnauthorized, "Unauthorized")
}

func BadRequest(message string) *metav1.Status {
	return Failure(http.StatusBadRequest, metav1.StatusReasonBadRequest, message)
}

// NotFound answers a GET of an object that does not exist: `pods "web" not found`.
func NotFound(gvr schema.GroupVersionResource, name string) *metav1.Status {
	st := apierrors.NewNotFound(gvr.GroupResource(), name).Status()
	st.Kind, st.APIVersion = "Status", "v1"
	return &st
}

// RetryLeast and retrySpread are when a client that is told to come again does so, in seconds:
// clients that came at the same time come again at different times.
const RetryLeast, RetrySpread = 5, 11

// TooManyRequests has a client come again later. client-go waits for the Retry-After and retries by
// itself.
func TooManyRequests(why string) *metav1.Status {
	st := Failure(http.StatusTooManyRequests, metav1.StatusReasonTooManyRequests, "Too many requests, please try again later: "+why)
	st.Details = &metav1.StatusDetails{RetryAfterSeconds: RetryLeast + rand.Int32N(RetrySpread)}
	return st
}

// ServiceUnavailable answers what we cannot serve just now; the client may retry after a second.
func ServiceUnavailable(message string) *metav1.Status {
	st := Failure(http.StatusServiceUnavailable, metav1.StatusReasonServiceUnavailable, message)
	st.Details = &metav1.StatusDetails{RetryAfterSeconds: 1}
	return st
}

// Expired ends a watch whose resourceVersion is older than the history. oldest is the oldest one a
// watch may start from.
func Expired(rv, oldest uint64) *metav1.Status {
	return Failure(http.StatusGone, metav1.StatusReasonExpired, fmt.Sprintf("too old resource version: %d (%d)", rv, oldest))
}

// encodeStatus returns st as kube-apiserver writes it, with a newline.
func encodeStatus(st *metav1.Status) []byte {
	body, err := json.Marshal(st)
	if err != nil {
		panic("encode Status: " + err.Error()) // it holds strings and numbers only
	}
	return append(body, '\n')
}

// encodeStatusFor is encodeStatus for a body, which is indented, without a newline, for clients who
// read it with their own eyes.
func encodeStatusFor(st *metav1.Status, pretty bool) []byte {
	body := encodeStatus(st)
	if !pretty {
		return body
	}
	var b bytes.Buffer
	_ = json.Indent(&b, bytes.TrimSuffix(body, []byte("\n")), "", "  ")
	return b.Bytes()
}

// ErrorFrame returns the ERROR event of a watch in an encoding, with st as its object.
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

// encodeStatusCBOR returns st as kube-apiserver writes it in CBOR, behind the tag of self-described
// CBOR (k8s.io/apimachinery/pkg/runtime/serializer/cbor).
func encodeStatusCBOR(st *metav1.Status) []byte {
	body, err := direct.Marshal(st)
	if err != nil {
		panic("encode Status: " + err.Error()) // it holds strings and numbers only
	}
	return append([]byte("\xd9\xd9\xf7"), body...)
}

// encodeStatusProtobuf returns st as kube-apiserver writes it in protobuf: a runtime.Unknown behind
// a magic number (k8s.io/apimachinery/pkg/runtime/serializer/protobuf).
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

// Write makes st the response of x. If the connection was to end with the response, it still is.
func Write(x *exchange.Exchange, st *metav1.Status) {
	x.Response.Reset()
	fill(&x.Response, st, AuditID(x), PrettyStatus(x))
}

// Response returns st as a response to a request of which auditID and pretty are known.
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

// AddCommonHeader adds to the response what every response of kube-apiserver carries, and returns
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

// AuditID returns the request's Audit-ID, or a new one.
func AuditID(x *exchange.Exchange) string {
	if id := x.Header.Get("Audit-Id"); id != "" {
		return strings.Clone(id)
	}
	return string(uuid.NewUUID())
}

// PrettyStatus reports whether the client reads bodies with its own eyes, by kube-apiserver's
// rules: the pretty parameter, else the Accept header, else a User-Agent known to be a terminal or
// a browser.
func PrettyStatus(x *exchange.Exchange) bool {
	if target, _ := exchange.CutTarget(x.Target); strings.Contains(target.Query, "pretty") {
		query, _ := url.ParseQuery(target.Query) // what can be read of it
		if pretty := query.Get("pretty"); pretty != "" {
			on, err := strconv.ParseBool(pretty)
			return err == nil && on
		}
	}
	if strings.Contains(x.Header.Get("Accept"), "pretty=1") {
		return true
	}
	for _, agent := range []string{"curl", "Wget", "Mozilla/5.0"} {
		if strings.HasPrefix(x.Header.Get("User-Agent"), agent) {
			return true
		}
	}
	return false
}
