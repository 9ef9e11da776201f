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

// past is how a stream was closed.
type past uint8

const (
	forgotten  past = iota
	completed       // both sides have sent END_STREAM
	resetHere       // frames of the client may still be under way
	resetThere      // by the client
)

// keptClosed is how many closed streams are remembered. Frames for them may still be under way.
const keptClosed = 32

// pastStreams remembers how the last streams of a connection were closed. It is a ring.
type pastStreams struct {
	all [keptClosed]struct {
		id  uint32
		how past
	}
	next int
}

func (p *pastStreams) note(id uint32, how past) {
	for i := range p.all {
		if p.all[i].id == id {
			p.all[i].how = how
			return
		}
	}
	p.all[p.next].id, p.all[p.next].how = id, how
	p.next = (p.next + 1) % keptClosed
}

func (p *pastStreams) of(id uint32) past {
	for _, s := range p.all {
		if s.id == id {
			return s.how
		}
	}
	return forgotten
}
