package lane

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"syscall"
	"time"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// laneError is why an upstream watch, or an attempt at one, broke.
type laneError struct {
	kind   string // see errorKind
	at     time.Time
	relist bool // the collection has to be listed
}

// ErrorKind names what went wrong upstream without repeating what upstream said: a status, such as
// "410 Gone", or one of a few words.
func ErrorKind(err error) string {
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
	case errors.Is(err, ErrEndedAtOnce):
		return "EndedAtOnce"
	case errors.Is(err, ErrSilent):
		return "Silent"
	case errors.Is(err, fanout.ErrBackwards), errors.Is(err, errBehind):
		return "WentBackwards"
	case errors.Is(err, framing.ErrTooLong):
		return "TooLong"
	case errors.Is(err, framing.ErrTooDeep):
		return "TooDeep"
	case errors.As(err, &certificate):
		return "CertificateRefused"
	case errors.As(err, &name):
		return "NameNotFound"
	case errors.Is(err, syscall.ECONNREFUSED):
		return "ConnectionRefused"
	case errors.Is(err, syscall.ECONNRESET), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return "ConnectionBroken"
	case strings.Contains(err.Error(), "http2: client connection lost"): // no answer to a ping; golang.org/x/net/http2 has no name for it
		return "NoAnswer"
	case errors.Is(err, context.Canceled):
		return "BrokenOff" // by us: see lane.breakWatch
	case errors.As(err, &network) && network.Timeout():
		return "Timeout"
	case network != nil:
		return "NetworkError"
	}
	return "Unreadable" // answers that make no sense; the log says which
}
