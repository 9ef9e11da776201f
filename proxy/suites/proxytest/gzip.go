package proxytest

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"net/http"
)

// memberReader reads a gzip stream; see Uncompressed.
type memberReader struct {
	io.Closer
	wire   *bufio.Reader
	strict bool
	zip    *gzip.Reader // nil until the first Read
}

// Uncompressed returns the bytes of a body, each as soon as it can be decoded. What a cache answers
// with gzip must be exactly one member. Another, or anything else behind the first, is an error, as it
// is for decoders that do not go on to the next member. kube-apiserver ends a member with each flush of
// a watch with initial events, since 1.37.
func Uncompressed(resp *http.Response) io.ReadCloser {
	if resp.Header.Get("Content-Encoding") != "gzip" {
		return resp.Body
	}
	return &memberReader{Closer: resp.Body, wire: bufio.NewReader(resp.Body), strict: FromCache(resp.Header)}
}

func (m *memberReader) Read(p []byte) (int, error) {
	if m.zip == nil {
		zip, err := gzip.NewReader(m.wire)
		if err != nil {
			return 0, fmt.Errorf("gzip header: %w", err)
		}
		zip.Multistream(!m.strict)
		m.zip = zip
	}
	n, err := m.zip.Read(p)
	if err == io.EOF && m.strict {
		switch _, behind := m.wire.Peek(1); {
		case behind == nil:
			err = errors.New("bytes behind the gzip member")
		case behind != io.EOF:
			err = fmt.Errorf("behind the gzip member: %w", behind)
		}
	}
	return n, err
}
