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

// chunkedLength is fasthttp's length of a chunked body.
const chunkedLength = -1

// sawEnd reports whether stream, the stream of a chunked body, has read the body's last chunk.
// fasthttp's stream also returns io.EOF when the client's connection ends between two chunks; only
// an unexported field tells the difference. Half of an object must not be taken for the whole
// object. A stream without this field counts as one that has not reached the end. See checkBodyEnd.
func sawEnd(stream io.Reader) bool {
	s := reflect.Indirect(reflect.ValueOf(stream))
	if s.Kind() != reflect.Struct {
		return false
	}
	eof := s.FieldByName("eof")
	return eof.IsValid() && eof.Kind() == reflect.Bool && eof.Bool()
}

// checkBodyEnd returns an error if sawEnd is wrong with this version of fasthttp: if it takes a
// truncated body for a whole one, or the other way round. Such a build must not start to serve.
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
