package http1

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/valyala/fasthttp"
)

// chunkedLength is what fasthttp calls the length of a body in chunks.
const chunkedLength = -1

// sawEnd reports whether stream, of a body in chunks, has seen the body's last chunk. fasthttp's
// stream says io.EOF too when the client's connection ends between two chunks, and only a field of
// its own tells the difference: half of an object must not be taken for all of it. A stream without
// this field has not seen the end. See checkBodyEnd.
func sawEnd(stream io.Reader) bool {
	s := reflect.Indirect(reflect.ValueOf(stream))
	if s.Kind() != reflect.Struct {
		return false
	}
	eof := s.FieldByName("eof")
	return eof.IsValid() && eof.Kind() == reflect.Bool && eof.Bool()
}

// checkBodyEnd returns an error if sawEnd does not know this fasthttp: if it takes a body for whole
// that is not, or no body in chunks for whole. Such a build must not begin to serve.
func checkBodyEnd() error {
	for body, whole := range map[string]bool{
		"2\r\n{}\r\n0\r\n\r\n": true,
		"2\r\n{}\r\n":          false,
		"2\r\n{}":              false,
		"":                     false,
	} {
		var req fasthttp.Request
		r := bufio.NewReader(strings.NewReader("POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n" + body))
		if err := req.Header.Read(r); err != nil {
			return fmt.Errorf("fasthttp does not read a request: %w", err)
		}
		if err := req.ContinueReadBodyStream(r, 0); err != nil {
			return fmt.Errorf("fasthttp does not read a request's body: %w", err)
		}
		stream := req.BodyStream()
		_, err := io.ReadAll(stream)
		seen := err == nil && sawEnd(stream)
		if _ = req.CloseBodyStream(); seen != whole {
			return errors.New("this version of fasthttp does not tell where a request's body in chunks ends: watchfan must be built with the version in its go.mod")
		}
	}
	return nil
}
