package proxytest

import (
	"bufio"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
)

// memberReader reads a gzip stream as strict decoders do; see NewMemberReader.
type memberReader struct {
	io.Closer
	wire *bufio.Reader
	zip  *gzip.Reader // nil until the first Read
}

// NewMemberReader returns the uncompressed bytes of a body that is exactly one gzip member, each as
// soon as it can be decoded. Another member, or anything else behind the first, is an error, as it
// is for decoders that do not go on to the next member.
func NewMemberReader(body io.ReadCloser) io.ReadCloser {
	return &memberReader{Closer: body, wire: bufio.NewReader(body)}
}

func (m *memberReader) Read(p []byte) (int, error) {
	if m.zip == nil {
		zip, err := gzip.NewReader(m.wire)
		if err != nil {
			return 0, fmt.Errorf("gzip header: %w", err)
		}
		zip.Multistream(false)
		m.zip = zip
	}
	n, err := m.zip.Read(p)
	if err == io.EOF {
		switch _, behind := m.wire.Peek(1); {
		case behind == nil:
			err = errors.New("bytes behind the gzip member")
		case behind != io.EOF:
			err = fmt.Errorf("behind the gzip member: %w", behind)
		}
	}
	return n, err
}
