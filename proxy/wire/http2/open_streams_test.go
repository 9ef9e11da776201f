package http2

import (
	"testing"
	"unsafe"
)

// A stream takes no more memory than its comment demands, because there may be very many.
func TestStreamSize(t *testing.T) {
	if got := unsafe.Sizeof(stream{}); got > 80 {
		t.Errorf("%d bytes", got)
	}
}
