package http2

import (
	"cmp"
	"slices"
)

// openStreams are the streams that are open on the wire, in the order of their numbers. A client
// opens them in this order. A map would take 15 bytes more for each.
type openStreams []*stream

// find returns the stream with a number, nil if there is none.
func (s openStreams) find(id uint32) *stream {
	if i, ok := s.index(id); ok {
		return s[i]
	}
	return nil
}

func (s openStreams) index(id uint32) (i int, ok bool) {
	return slices.BinarySearchFunc(s, id, func(st *stream, id uint32) int { return cmp.Compare(st.id, id) })
}

// remove removes a stream that is there.
func (s *openStreams) remove(st *stream) {
	if i, ok := s.index(st.id); ok {
		*s = slices.Delete(*s, i, i+1)
	}
}
