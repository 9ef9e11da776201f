package lane

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"time"

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

// expired reports whether the resourceVersion is too old for upstream.
func (e *statusError) expired() bool { return e.Code == http.StatusGone }

// beginning reports whether upstream may just be filling its own cache, which is soon done; e may
// be nil.
func (e *statusError) beginning() bool { return e != nil && e.Code == http.StatusTooManyRequests }

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
	return &statusError{Status: ev.Status, retryAfter: time.Duration(min(max(ev.Status.Details.RetryAfterSeconds, 0), 60)) * time.Second}
}
