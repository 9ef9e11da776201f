package apistatus

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"strconv"
	"strings"

	"github.com/valyala/fasthttp"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/cbor/direct"
	"k8s.io/apimachinery/pkg/util/uuid"

	"github.com/watchfan/watchfan/framing"
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

// Write makes st the response of ctx. If the connection was to end with the response, it still is.
func Write(ctx *fasthttp.RequestCtx, st *metav1.Status) {
	last := ctx.Response.ConnectionClose()
	ctx.Response.Reset()
	if last {
		ctx.SetConnectionClose()
	}
	ctx.SetStatusCode(int(st.Code))
	CommonHeaders(ctx)
	ctx.Response.Header.SetContentType("application/json")
	if after := retryAfter(st); after != "" {
		ctx.Response.Header.Set("Retry-After", after)
	}
	ctx.SetBody(encodeStatusFor(st, PrettyStatus(ctx)))
}

// Response is writeStatus for a connection that is taken over. auditID and pretty are those of the
// request.
func Response(st *metav1.Status, auditID string, pretty bool) *http.Response {
	body := encodeStatusFor(st, pretty)
	header := http.Header{
		"Audit-Id":      {auditID},
		"Cache-Control": {"no-cache, private"},
		"Content-Type":  {"application/json"},
	}
	if after := retryAfter(st); after != "" {
		header.Set("Retry-After", after)
	}
	return &http.Response{
		StatusCode:    int(st.Code),
		Header:        header,
		ContentLength: int64(len(body)),
		Body:          io.NopCloser(bytes.NewReader(body)),
	}
}

func retryAfter(st *metav1.Status) string {
	if st.Details == nil || st.Details.RetryAfterSeconds <= 0 {
		return ""
	}
	return strconv.Itoa(int(st.Details.RetryAfterSeconds))
}

// CommonHeaders sets what every response of kube-apiserver carries.
func CommonHeaders(ctx *fasthttp.RequestCtx) {
	ctx.Response.Header.Set("Audit-Id", AuditID(ctx))
	ctx.Response.Header.Set("Cache-Control", "no-cache, private")
}

// AuditID returns the request's Audit-ID, or a new one.
func AuditID(ctx *fasthttp.RequestCtx) string {
	if id := ctx.Request.Header.Peek("Audit-Id"); len(id) > 0 {
		return string(id)
	}
	return string(uuid.NewUUID())
}

// PrettyStatus reports whether the client reads bodies with its own eyes, by kube-apiserver's
// rules: the pretty parameter, else the Accept header, else a User-Agent known to be a terminal or
// a browser.
func PrettyStatus(ctx *fasthttp.RequestCtx) bool {
	if pretty := ctx.QueryArgs().Peek("pretty"); len(pretty) > 0 {
		on, err := strconv.ParseBool(string(pretty))
		return err == nil && on
	}
	if strings.Contains(string(ctx.Request.Header.Peek("Accept")), "pretty=1") {
		return true
	}
	for _, agent := range []string{"curl", "Wget", "Mozilla/5.0"} {
		if bytes.HasPrefix(ctx.UserAgent(), []byte(agent)) {
			return true
		}
	}
	return false
}
