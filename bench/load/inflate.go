package load

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/flate"
)

// An inflater decompresses a gzip stream (RFC 1952) that comes in pieces, one member after the
// other:
//
//	1f 8b 08 00 …6 bytes  blocks … 00 00 ff ff  blocks …  CRC-32 length  1f 8b …
//	header                         sync marker            trailer
//
// A server that flushes after each event writes a sync marker after it, or ends the member. An
// inflater decompresses up to that point; a piece that is cut elsewhere waits for the rest. It does
// not verify checksums, because the watcher checks each event. The zero value is ready for the
// first header.
type inflater struct {
	state  inflateState
	in     []byte        // not decompressed yet
	window []byte        // the last 32 KiB of the member so far, to which its blocks may refer
	blocks io.ReadCloser // a flate reader; nil before the first
	out    bytes.Buffer
}

type inflateState uint8

const (
	inHeader inflateState = iota
	inBlocks
	inTrailer
)

const (
	windowSize  = 32 << 10
	headerSize  = 10
	trailerSize = 8
	maxInflated = 64 << 20 // most bytes that wait, or that one piece brings
)

var (
	syncMarker = []byte{0, 0, 0xff, 0xff}
	errHeader  = errors.New("gzip header with flags, or none") // no name, comment or extra field is read
)

// feed takes the next piece and returns the decompressed bytes, valid until the next call. After an
// error the inflater cannot be used.
func (z *inflater) feed(p []byte) ([]byte, error) {
	if len(z.in)+len(p) > maxInflated {
		return nil, errors.New("more than 64 MiB of gzip without a flush")
	}
	z.in = append(z.in, p...)
	z.out.Reset()
	for {
		switch z.state {
		case inHeader:
			if len(z.in) < headerSize {
				return z.out.Bytes(), nil
			}
			if !bytes.HasPrefix(z.in, []byte{0x1f, 0x8b, 8, 0}) {
				return nil, fmt.Errorf("%w: % x", errHeader, z.in[:headerSize])
			}
			z.consume(headerSize)
			z.window, z.state = z.window[:0], inBlocks
		case inBlocks:
			ended, err := z.inflate()
			if !ended || err != nil {
				return z.out.Bytes(), err
			}
			z.state = inTrailer
		case inTrailer:
			if len(z.in) < trailerSize {
				return z.out.Bytes(), nil
			}
			z.consume(trailerSize)
			z.state = inHeader
		}
	}
}

func (z *inflater) consume(n int) { z.in = append(z.in[:0], z.in[n:]...) }

// inflate decompresses all complete blocks, and reports whether the last block of the member is
// one.
func (z *inflater) inflate() (ended bool, err error) {
	if len(z.in) == 0 {
		return false, nil
	}
	in := bytes.NewReader(z.in) // an io.ByteReader: flate reads nothing after the last block
	if z.blocks == nil {
		z.blocks = flate.NewReaderDict(in, z.window)
	} else if err := z.blocks.(flate.Resetter).Reset(in, z.window); err != nil {
		return false, err
	}
	before := z.out.Len()
	n, err := z.out.ReadFrom(io.LimitReader(z.blocks, maxInflated+1))
	switch {
	case n > maxInflated:
		return false, errors.New("gzip of more than 64 MiB in one piece")
	case err == nil:
		z.consume(len(z.in) - in.Len())
		return true, nil
	case !errors.Is(err, io.ErrUnexpectedEOF):
		return false, fmt.Errorf("gzip: %w", err)
	case !bytes.HasSuffix(z.in, syncMarker):
		z.out.Truncate(before)
		return false, nil
	}
	z.in = z.in[:0]
	z.window = append(z.window, z.out.Bytes()[before:]...)
	if excess := len(z.window) - windowSize; excess > 0 {
		z.window = append(z.window[:0], z.window[excess:]...)
	}
	return false, nil
}
