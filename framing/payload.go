package framing

import (
	"bytes"
	"strconv"
)

// maxSizeDigits is the limit of a chunk size's digits. It keeps the size within an int.
const maxSizeDigits = 7

// NextPayload takes the first chunk of a batch. A batch consists of whole HTTP/1.1 chunks. Each
// chunk is one slice or two slices, like a [Frame]. NextPayload returns the chunk's payload,
// without the chunk size and the line ends, for a protocol that frames events otherwise. The
// payload is the chunk's own memory: first and, if the chunk is two slices, second. rest is the
// batch behind the chunk.
//
//	7⏎{"a":  1}⏎⏎  …    →    {"a":  1}⏎  …
//
// ok is false if the batch is empty or does not begin with such a chunk.
func NextPayload(batch [][]byte) (first, second []byte, rest [][]byte, ok bool) {
	if len(batch) == 0 {
		return nil, nil, nil, false
	}
	size, first, ok := cutSize(batch[0])
	if !ok {
		return nil, nil, nil, false
	}
	if len(first) >= size+len(crlf) {
		return first[:size:size], nil, batch[1:], endsChunk(first, size)
	}
	if len(first) > size || len(batch) == 1 {
		return nil, nil, nil, false
	}
	second = batch[1]
	size -= len(first)
	if !endsChunk(second, size) {
		return nil, nil, nil, false
	}
	return first, second[:size:size], batch[2:], true
}

// cutSize splits a chunk behind its size.
func cutSize(chunk []byte) (size int, rest []byte, ok bool) {
	digits, rest, ok := bytes.Cut(chunk, []byte(crlf))
	if !ok || len(digits) > maxSizeDigits {
		return 0, nil, false
	}
	n, err := strconv.ParseUint(string(digits), 16, 32)
	return int(n), rest, err == nil
}

// endsChunk reports whether p is the last size bytes of a payload and the end of its chunk.
func endsChunk(p []byte, size int) bool {
	return len(p) == size+len(crlf) && string(p[size:]) == crlf
}

// IsBookmark reports whether an event of a watch in JSON or protobuf, with its prefix, is a bookmark.
func IsBookmark(e Encoding, event []byte) bool {
	if e == Protobuf {
		return bytes.HasPrefix(event[e.LengthPrefix():], []byte("\x0a\x08BOOKMARK"))
	}
	return bytes.HasPrefix(event, []byte(`{"type":"BOOKMARK"`))
}
