package account

// Shared is what several clients hold together, for as long as one of them does. It counts once: for
// one holder's source, and for another's when that one has let go. Its methods may be called from any
// goroutine.
type Shared struct {
	ledger *Ledger
	kind   Kind
	bytes  int64

	// Guarded by ledger.mu.
	holders map[*holder]struct{}
	entry   *Entry // of the source that pays; nil without holders
	paying  int    // holders of that source
}

// holder is one client that holds a Shared.
type holder struct {
	source Source
	cut    func()
}

// Share returns bytes that nobody holds yet.
func (l *Ledger) Share(kind Kind, bytes int64) *Shared {
	return &Shared{ledger: l, kind: kind, bytes: bytes, holders: make(map[*holder]struct{})}
}

// Hold makes a client hold the bytes until it calls letGo. cut makes it call that soon; see
// [Ledger.Open]. ok is false if the client may not hold them.
func (s *Shared) Hold(source Source, cut func()) (letGo func(), ok bool) {
	l, h := s.ledger, &holder{source, cut}
	l.mu.Lock()
	var victim *balance
	switch {
	case s.entry == nil:
		e := s.payLocked(source)
		if victim, ok = l.setLocked(e, s.bytes); !ok {
			l.closeLocked(e)
			s.entry = nil
		}
	default:
		ok = s.entry.of.source != source || !s.entry.gone
	}
	if ok {
		s.holders[h] = struct{}{}
		if s.entry.of.source == source {
			s.paying++
		}
	}
	cuts, done := l.cutLocked(victim, bounded, false)
	l.mu.Unlock()
	l.call(cuts, done)
	return func() { s.letGo(h) }, ok
}

// payLocked makes a source pay.
func (s *Shared) payLocked(source Source) *Entry {
	e := s.ledger.openLocked(source, s.kind, nil)
	e.ends = func() { s.cut(e) }
	s.entry = e
	return e
}

// letGo removes a holder. If its source pays, and has no other one, the next pays.
func (s *Shared) letGo(h *holder) {
	l := s.ledger
	l.mu.Lock()
	defer l.mu.Unlock()
	if _, ok := s.holders[h]; !ok {
		return
	}
	delete(s.holders, h)
	if s.entry.of.source != h.source {
		return
	}
	if s.paying--; s.paying > 0 {
		return
	}
	l.closeLocked(s.entry)
	s.entry = nil
	for next := range s.holders {
		if s.entry == nil {
			l.moveLocked(s.payLocked(next.source), s.bytes) // they are held already, whatever the bounds
		}
		if s.entry.of.source == next.source {
			s.paying++
		}
	}
}

// cut cuts the holders of the source that pays by e.
func (s *Shared) cut(e *Entry) {
	var cuts []func()
	s.ledger.mu.Lock()
	if s.entry == e {
		for h := range s.holders {
			if h.source == e.of.source {
				cuts = append(cuts, h.cut)
			}
		}
	}
	s.ledger.mu.Unlock()
	for _, cut := range cuts {
		cut()
	}
}
