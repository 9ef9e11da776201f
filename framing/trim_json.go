package framing

import "bytes"

// json searches an object in JSON.
func (c *trimmer) json(t *trimTree) {
	s := newJSONScanner(nil)
	s.reset(c.object)
	if _, _, err := c.jsonObject(s, t); err != nil {
		panic(err) // it has been read before
	}
}

// jsonObject searches the object that the scanner reads next. A member is left out with the comma
// behind it. Without a member behind it that stays, it is left out with the one before it:
//
//	{"a":1,"b":2,"c":3}  without b  {"a":1,"c":3}  without b, c  {"a":1}
//	       └────┘                                      └───────────┘
//
// It returns the number of members, and how many of them are left out.
func (c *trimmer) jsonObject(s *jsonScanner, t *trimTree) (members, left int, err error) {
	stays := -1   // the end of the last member that stays
	open := false // the last member was left out
	_, err = s.members(func(name []byte) error {
		start, mark := s.offset()-len(name), len(c.splices)
		if open {
			c.splices[mark-1].old.end = start
		}
		members++
		var err error
		if open, err = c.jsonMember(s, name, t); !open {
			stays = s.offset()
			return err
		}
		c.splices = c.splices[:mark]
		c.cut(span{start, s.offset()})
		left++
		return err
	})
	if open && stays >= 0 {
		c.splices[len(c.splices)-1].old.start = stays
	}
	return members, left, err
}

// jsonMember reads the value of a member, and reports whether all of it is left out.
func (c *trimmer) jsonMember(s *jsonScanner, name []byte, in *trimTree) (all bool, err error) {
	t := in.members[string(name[1:len(name)-1])]
	if bytes.IndexByte(name, '\\') >= 0 {
		t = in.members[unquote(name)]
	}
	if c.leaves(t) || t == nil || t.members == nil || s.dec.PeekKind() != '{' {
		return c.leaves(t), s.dec.SkipValue()
	}
	members, left, err := c.jsonObject(s, t)
	return t.goesEmpty && members > 0 && members == left, err
}
