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

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// statusError is a request that upstream refused, or an ERROR event.
type statusError struct {
	framing.Status
	retryAfter time.Duration
}

func (e *statusError) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("upstream: %d %s", e.Code, http.StatusText(e.Code))
	}
	return fmt.Sprintf("upstream: %d %s: %.200s", e.Code, e.Reason, e.Message)
}

// beginning reports whether upstream may still be filling its own cache, which soon ends; e may be
// nil.
func (e *statusError) beginning() bool { return e != nil && e.Code == http.StatusTooManyRequests }

// Expired reports whether err is upstream's answer to a resourceVersion that is too old.
func Expired(err error) bool {
	var status *statusError
	return errors.As(err, &status) && status.Code == http.StatusGone
}

// readStatus returns the *statusError of a response that is not 200.
func readStatus(resp *http.Response) error {
	e := &statusError{}
	body, _ := io.ReadAll(io.LimitReader(resp.Body, 64<<10)) // an unreadable Status leaves the code
	if json.Unmarshal(body, &e.Status) != nil {
		e.Status = framing.Status{}
	}
	e.Code = resp.StatusCode
	seconds, _ := strconv.Atoi(resp.Header.Get("Retry-After"))
	e.retryAfter = min(time.Duration(max(seconds, 0))*time.Second, time.Minute)
	return e
}

// eventError returns the *statusError of an ERROR event.
func eventError(ev framing.Event) error {
	seconds := min(max(ev.Status.Details.RetryAfterSeconds, 0), 60)
	return &statusError{Status: ev.Status, retryAfter: time.Duration(seconds) * time.Second}
}

// uncachable reports whether err comes from an object that is too large or too deep for framing, or
// that JSON may confuse with another.
// Only a list proves that there is such an object: one that a watch brings may be gone when the
// collection is listed.
func uncachable(err error) bool {
	return errors.Is(err, framing.ErrTooLong) || errors.Is(err, framing.ErrTooDeep) ||
		errors.Is(err, framing.ErrReplaced)
}

// hangs reports whether err comes from an upstream that answers, but not as it should. If there are
// several kube-apiservers, another one may work.
func hangs(err error) bool {
	var status *statusError
	return errors.As(err, &status) && status.Code >= http.StatusInternalServerError ||
		errors.Is(err, errSilent) || errors.Is(err, errBehind) ||
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
	var status *statusError
	if errors.As(err, &status) {
		return status.Code >= http.StatusInternalServerError || status.Code == http.StatusTooManyRequests
	}
	var network net.Error
	return hangs(err) || errors.As(err, &network) || errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF)
}

// errorKind names what went wrong upstream without repeating what upstream said: a status, such as
// "410 Gone", or one of a few words.
func errorKind(err error) string {
	var status *statusError
	var network net.Error
	var name *net.DNSError
	var certificate *tls.CertificateVerificationError
	switch {
	case errors.As(err, &status):
		if text := http.StatusText(status.Code); text != "" {
			return fmt.Sprintf("%d %s", status.Code, text)
		}
		return "UnknownStatus"
	case errors.Is(err, errEndedAtOnce):
		return "EndedAtOnce"
	case errors.Is(err, errSilent):
		return "Silent"
	case errors.Is(err, fanout.ErrBackwards), errors.Is(err, errBehind):
		return "WentBackwards"
	case errors.Is(err, framing.ErrTooLong):
		return "TooLong"
	case errors.Is(err, framing.ErrTooDeep):
		return "TooDeep"
	case errors.Is(err, framing.ErrReplaced):
		return "NameReplaced"
	case errors.As(err, &certificate):
		return "CertificateRefused"
	case errors.As(err, &name):
		return "NameNotFound"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "ConnectionRefused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "ConnectionBroken"
	case strings.Contains(err.Error(), "http2: client connection lost"):
		return "NoAnswer" // to a ping; golang.org/x/net/http2 has no name for the error
	case errors.Is(err, context.Canceled):
		return "BrokenOff" // by us: see BreakWatch
	case errors.As(err, &network) && network.Timeout():
		return "Timeout"
	case network != nil:
		return "NetworkError"
	}
	return "Unreadable" // an answer that makes no sense; the log says which
}
