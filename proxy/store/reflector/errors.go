package reflector

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"syscall"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/gate/apistatus"
)

// statusError is a request that upstream refused, or an ERROR event.
type statusError struct {
	metav1.Status
	retryAfter time.Duration
}

func (e *statusError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("upstream: %d %s", e.Code, http.StatusText(int(e.Code)))
	}
	return fmt.Sprintf("upstream: %d %s: %.200s", e.Code, e.Reason, e.Message)
}

// statusCode returns the code of upstream's refusal; 0 if err is none.
func statusCode(err error) int {
	if status, ok := errors.AsType[*statusError](err); ok {
		return int(status.Code)
	}
	return 0
}

// Expired reports whether err is upstream's answer to a resourceVersion that is too old.
func Expired(err error) bool { return statusCode(err) == http.StatusGone }

// notServed reports whether err is upstream's answer that it does not have the collection. It says so of an
// encoding that another version or feature gate has taken away, and no attempt would change that.
func notServed(err error) bool {
	code := statusCode(err)
	return code == http.StatusNotFound || code == http.StatusNotAcceptable
}

// readStatus returns the *statusError of a response that is not 200.
func readStatus(resp *http.Response) error {
	e := &statusError{}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // an unreadable Status leaves the code
	if json.Unmarshal(body, &e.Status) != nil {
		e.Status = metav1.Status{}
	}
	e.Code = int32(resp.StatusCode)
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	e.retryAfter = min(time.Duration(max(seconds, 0))*time.Second, time.Minute)
	return e
}

// eventError returns the *statusError of an ERROR event.
func eventError(ev framing.Event) error {
	e := &statusError{Status: *ev.Status}
	if e.Details != nil {
		e.retryAfter = time.Duration(min(max(e.Details.RetryAfterSeconds, 0), 60)) * time.Second
	}
	return e
}

// uncachable reports whether err comes from an object that is too large or too deep for framing, or
// that JSON may confuse with another. Only a list proves that there is such an object: one that a
// watch brings may be gone when the collection is listed.
func uncachable(err error) bool {
	return errors.Is(err, framing.ErrTooLong) || errors.Is(err, framing.ErrTooDeep) ||
		errors.Is(err, framing.ErrReplaced)
}

// hangs reports whether err comes from an upstream that answers, but not as it should. If there are
// several kube-apiservers, another one may work.
func hangs(err error) bool {
	return statusCode(err) >= http.StatusInternalServerError || errors.Is(err, errSilent) || errors.Is(err, errBehind) ||
		errors.Is(err, context.DeadlineExceeded) ||
		errors.Is(err, context.Canceled) // see BreakWatch
}

// troubled reports whether the attempt after one that ended with err may succeed soon: upstream is
// away, slow or busy. It is not troubled if it does not let us list, or if the list cannot be
// cached.
func troubled(err error) bool {
	if uncachable(err) || errors.Is(err, ErrNoRoom) {
		return false
	}
	if code := statusCode(err); code != 0 {
		return apistatus.Busy(code)
	}
	_, network := errors.AsType[net.Error](err)
	return hangs(err) || network || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// kinds name errors in errorKind.
var kinds = []struct {
	err  error
	kind string
}{
	{errEndedAtOnce, "EndedAtOnce"},
	{errSilent, "Silent"},
	{fanout.ErrBackwards, "WentBackwards"},
	{errBehind, "WentBackwards"},
	{framing.ErrTooLong, "TooLong"},
	{framing.ErrTooDeep, "TooDeep"},
	{framing.ErrReplaced, "NameReplaced"},
	{syscall.ECONNREFUSED, "ConnectionRefused"},
	{syscall.ECONNRESET, "ConnectionBroken"},
	{io.EOF, "ConnectionBroken"},
	{io.ErrUnexpectedEOF, "ConnectionBroken"},
}

// errorKind names what went wrong upstream without repeating what upstream said: a status, such as
// "410 Gone", or one of a few words.
func errorKind(err error) string {
	if status, ok := errors.AsType[*statusError](err); ok {
		if text := http.StatusText(int(status.Code)); text != "" {
			return fmt.Sprintf("%d %s", status.Code, text)
		}
		return "UnknownStatus"
	}
	for _, k := range kinds {
		if errors.Is(err, k.err) {
			return k.kind
		}
	}
	_, certificate := errors.AsType[*tls.CertificateVerificationError](err)
	_, name := errors.AsType[*net.DNSError](err)
	network, isNetwork := errors.AsType[net.Error](err)
	switch {
	case certificate:
		return "CertificateRefused"
	case name:
		return "NameNotFound"
	case strings.Contains(err.Error(), "http2: client connection lost"):
		return "NoAnswer" // to a ping; golang.org/x/net/http2 has no name for the error
	case errors.Is(err, context.Canceled):
		return "BrokenOff" // by us: see BreakWatch
	case isNetwork && network.Timeout():
		return "Timeout"
	case isNetwork:
		return "NetworkError"
	}
	return "Unreadable" // an answer that makes no sense; the log says which
}
