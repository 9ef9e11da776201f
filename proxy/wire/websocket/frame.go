package websocket

import "encoding/binary"

// opcode is the type of a frame (RFC 6455, section 5.2).
type opcode byte

const (
	opText   opcode = 0x1
	opBinary opcode = 0x2
	opClose  opcode = 0x8
	opPing   opcode = 0x9
	opPong   opcode = 0xa
)

// The CLOSE frames that kube-apiserver sends: their status is 1000 or 1002, without a reason (RFC
// 6455, section 7.4).
const (
	CloseNormal        = "\x88\x02\x03\xe8"
	closeProtocolError = "\x88\x02\x03\xea"
)

const (
	finalBit = 0x80 // in the first byte: the frame ends its message
	maskBit  = 0x80 // in the second byte: a masking key follows the length

	// Lengths in the second byte. A longer one follows in 2 or in 8 bytes.
	maxShortLength = 125
	length16       = 126
	length64       = 127

	maxHeader = 2 + 8 + 4 // with a masking key
	// maxServerHeader is the longest header of a server's frame.
	maxServerHeader = 2 + 8
	// maxControl is the longest payload of a control frame.
	maxControl = 125
)

// appendHeader appends the header of a server's frame that holds a whole message of n bytes:
//
//	81 05                              n ≤ 125
//	81 7e 01 a8                        n < 65,536
//	81 7f 00 00 00 00 00 01 88 51
func appendHeader(dst []byte, op opcode, n int) []byte {
	dst = append(dst, finalBit|byte(op))
	switch {
	case n <= maxShortLength:
		return append(dst, byte(n))
	case n < 1<<16:
		return binary.BigEndian.AppendUint16(append(dst, length16), uint16(n))
	}
	return binary.BigEndian.AppendUint64(append(dst, length64), uint64(n))
}

// header is a frame's header while its bytes come. The zero value is ready for the next frame.
type header struct {
	bytes [maxHeader]byte
	n     uint8 // bytes that have come
}

// take takes bytes of p up to the end of the header. whole reports whether the header is complete.
func (h *header) take(p []byte) (rest []byte, whole bool) {
	for size := h.size(); int(h.n) < size; size = h.size() {
		if len(p) == 0 {
			return nil, false
		}
		n := copy(h.bytes[h.n:size], p)
		h.n += uint8(n)
		p = p[n:]
	}
	return p, true
}

// size is the header's length, as far as it is known: 2 until two bytes have come.
func (h *header) size() int {
	if h.n < 2 {
		return 2
	}
	size := 2 + h.lengthSize()
	if h.masked() {
		size += 4
	}
	return size
}

// lengthSize is the number of bytes of a length that does not fit into the second byte.
func (h *header) lengthSize() int {
	switch h.bytes[1] &^ maskBit {
	case length16:
		return 2
	case length64:
		return 8
	}
	return 0
}

func (h *header) opcode() opcode { return opcode(h.bytes[0] & 0xf) }
func (h *header) masked() bool   { return h.bytes[1]&maskBit != 0 }

// length returns the length of the frame's payload. As in golang.org/x/net/websocket, the first bit
// of a length of 8 bytes, which must be 0, is ignored.
func (h *header) length() uint64 {
	switch h.lengthSize() {
	case 2:
		return uint64(binary.BigEndian.Uint16(h.bytes[2:]))
	case 8:
		return binary.BigEndian.Uint64(h.bytes[2:]) &^ (1 << 63)
	}
	return uint64(h.bytes[1] &^ maskBit)
}

// key returns the masking key of a masked frame.
func (h *header) key() []byte { return h.bytes[2+h.lengthSize():][:4] }
