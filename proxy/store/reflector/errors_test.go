package reflector

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"syscall"
	"testing"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// An error's kind contains no text from outside.
func TestErrorKind(t *testing.T) {
	for want, err := range map[string]error{
		"EndedAtOnce":   errEndedAtOnce,
		"WentBackwards": fmt.Errorf("x: %w", fanout.ErrBackwards),
		"TooLong":       fmt.Errorf("x: %w", framing.ErrTooLong),
		"TooDeep":       fmt.Errorf("x: %w", framing.ErrTooDeep),
		"NameReplaced":  fmt.Errorf("x: %w", framing.ErrReplaced),
		"CertificateRefused": &url.Error{Op: "Get", URL: "https://secret",
			Err: &tls.CertificateVerificationError{Err: errors.New("secret")}},
		"NameNotFound": &url.Error{Op: "Get", URL: "https://secret",
			Err: &net.OpError{Op: "dial", Err: &net.DNSError{Name: "secret"}}},
		"ConnectionRefused": &url.Error{Op: "Get", Err: &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}},
		"ConnectionBroken":  fmt.Errorf("x: %w", io.ErrUnexpectedEOF),
		"BrokenOff":         fmt.Errorf("x: %w", context.Canceled),
		"Silent":            fmt.Errorf("x: %w: %w", errSilent, context.Canceled),
		"NoAnswer":          errors.New("x: http2: client connection lost"),
		"Timeout":           fmt.Errorf("x: %w", context.DeadlineExceeded),
		"NetworkError":      &url.Error{Op: "Get", Err: errors.New("secret")},
		"Unreadable":        errors.New("secret"),
	} {
		if got := errorKind(err); got != want {
			t.Errorf("%v: got %s, want %s", err, got, want)
		}
	}
}

func TestTroubled(t *testing.T) {
	status := func(code int32) error {
		e := &statusError{}
		e.Code = code
		return e
	}
	for _, err := range []error{status(429), status(500), status(503), status(504), io.EOF, io.ErrUnexpectedEOF,
		context.DeadlineExceeded, errSilent} {
		if !troubled(errors.Join(errors.New("list"), err)) {
			t.Errorf("%v is not taken for trouble", err)
		}
	}
	uncached := []error{framing.ErrTooLong, fmt.Errorf("%w: %w", errSilent, framing.ErrTooDeep), framing.ErrReplaced, ErrNoRoom}
	for _, err := range append(uncached, nil, status(401), status(403), status(404), status(406),
		errors.New("the list makes no sense")) {
		if troubled(err) {
			t.Errorf("%v is taken for trouble", err)
		}
	}
}
