package http2

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
