package framing

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
	"sync"

	"google.golang.org/protobuf/encoding/protowire"
)

// trimmer searches one object for what a Trim leaves out, and for the values by which it selects.
type trimmer struct {
	encoding Encoding
	object   []byte
	drops    uint64 // those that select the object
	splices  []splice
	heads    []byte // of messages, which are in splices
	values   [MostValues][]byte
	lists    int // that the walk is in

	// In JSON, managedFields are not read: they have half of the bytes. Other long values are not read if
	// they are as in the version before.
	sent    sentJSON
	managed span
	before  []byte    // the version before; nil if it is not known
	known   []skipped // of before, those that come next
	noted   bool      // what is skipped is noted
	skipped []skipped
}

// skipped is the place of a long value that was not looked into. Most changes leave most of those as
// they are.
type skipped struct{ start, end int32 }

// A value of leastSkipped bytes is long. A search looks for a value among the next mostKnown ones: some of
// before may be there no longer.
const (
	leastSkipped = 64
	mostKnown    = 4
)

// skip reads a value that nothing is to be found in.
func (c *trimmer) skip(in walk) {
	start := in.start()
	if !c.noted || jsonClasses[c.object[start]] == 0 {
		in.skip()
		return
	}
	for i, k := range c.known[:min(mostKnown, len(c.known))] {
		if bytes.HasPrefix(c.object[start:], c.before[k.start:k.end]) {
			c.known = c.known[i:]
			c.sent.at = start + int(k.end-k.start)
			break
		}
	}
	if c.sent.at == start {
		in.skip()
	}
	if c.sent.at-start >= leastSkipped {
		c.skipped = append(c.skipped, skipped{int32(start), int32(c.sent.at)})
		c.known = c.known[min(1, len(c.known)):]
	}
}

// trimmers are kept, so a search allocates next to nothing.
var trimmers = sync.Pool{New: func() any { return new(trimmer) }}

// release ends the use of what the search has found.
func (c *trimmer) release() {
	clear(c.splices)
	clear(c.values[:])
	c.splices, c.heads, c.skipped = c.splices[:0], c.heads[:0], c.skipped[:0]
	c.object, c.drops, c.lists = nil, 0, 0
	c.sent, c.managed, c.before, c.known, c.noted = sentJSON{}, span{}, nil, nil, false
	trimmers.Put(c)
}

// search searches for what is left out of the object for t. in is false if the object's values do not
// match. The caller then calls release. It takes less work if last is the form of the version before.
func (o *Object) search(t *Trim, before *Object, last *trimmed) (c *trimmer, in bool) {
	c = trimmers.Get().(*trimmer)
	c.encoding, c.object = o.encoding, o.Bytes()
	for i, d := range t.drops {
		if d.Selects == nil || d.Selects(o.Labels) {
			c.drops |= 1 << i
		}
	}
	switch {
	case c.drops == 0 && !t.keeps && len(t.where.Values) == 0:
	case o.encoding == Protobuf:
		raw := mustOpen(c.object, int(o.item), tagRaw)
		c.message(span{int(o.item), raw.start}, raw, &t.mask, t.keeps)
	case o.encoding == JSON:
		c.sent.reset(c.object)
		c.managed, c.noted = o.managed(), t.quiet
		if last != nil {
			c.before, c.known = before.Bytes(), last.skipped
		}
		c.members(&c.sent, &t.mask, t.keeps)
	default:
		in := newValues(CBOR, nil)
		in.reset(c.object)
		in.tag()
		c.members(in, &t.mask, t.keeps)
	}
	return c, len(t.where.Values) == 0 || t.where.Matches(c.values[:len(t.where.Values)])
}

// leaves reports whether all below m is left out. keeping says that only what Keep has stays.
func (c *trimmer) leaves(m *mask, keeping bool) bool {
	if m == nil {
		return keeping
	}
	return c.drops&m.drops != 0 || keeping && !m.keeps
}

// cut leaves out the bytes of at.
func (c *trimmer) cut(at span) {
	if n := len(c.splices); n > 0 && c.splices[n-1].old.end == at.start && c.splices[n-1].with == nil {
		c.splices[n-1].old.end = at.end
		return
	}
	c.splices = append(c.splices, splice{old: at})
}

// members searches the object that is read next, in JSON or CBOR. A member is left out with the comma
// behind it. Without a member behind it that stays, it is left out with the one before it:
//
//	{"a":1,"b":2,"c":3}  without b  {"a":1,"c":3}  without b, c  {"a":1}
//	       └────┘                                      └───────────┘
//
// In CBOR there are no commas, and the head of a map counts its entries. members reports whether all
// members are left out.
func (c *trimmer) members(in walk, m *mask, keeping bool) (all bool) {
	head, before, left := in.start(), len(c.splices), 0
	stays := -1   // the end of the last member that stays
	open := false // the last member was left out
	in.enter()
	for {
		start, name, ok := in.next()
		if !ok {
			break
		}
		mark := len(c.splices)
		if open {
			c.splices[mark-1].old.end = start
		}
		if open = c.member(in, start, m.named(name), keeping); !open {
			stays = in.offset()
			continue
		}
		c.splices = c.splices[:mark]
		c.cut(span{start, in.offset()})
		left++
	}
	if open && stays >= 0 {
		last := &c.splices[len(c.splices)-1].old
		last.start = min(last.start, stays)
	}
	if left > 0 && c.encoding == CBOR {
		c.splices = slices.Insert(c.splices, before, fewerEntries(c.object, head, uint64(left)))
	}
	return left > 0 && stays < 0
}

// member reads the value of the member that begins at start, and reports whether all of it is left out.
func (c *trimmer) member(in walk, start int, m *mask, keeping bool) bool {
	leaves := c.leaves(m, keeping)
	switch {
	case m != nil && len(m.below) > 0:
		return c.inner(in, m, keeping && !m.keep) || leaves
	case m != nil && m.value > 0 && c.lists == 0:
		c.values[m.value-1] = c.valueOf(in)
	case start == c.managed.start && c.managed.len() > 0:
		c.sent.at = c.managed.end
	default:
		c.skip(in)
	}
	return leaves
}

// inner reads a value into which paths lead, in a list those of each object. It reports whether all of
// it is left out.
func (c *trimmer) inner(in walk, m *mask, keeping bool) bool {
	switch in.kind() {
	case '{':
		return c.members(in, m, keeping) && m.annotations
	case '[':
		c.lists++
		for in.enterArray(); in.element(); {
			if in.kind() == '{' {
				c.members(in, m, keeping)
			} else {
				in.skip()
			}
		}
		c.lists--
		return false
	}
	if m.value > 0 && c.lists == 0 {
		c.values[m.value-1] = c.valueOf(in)
	} else {
		in.skip()
	}
	return keeping
}

// valueOf reads a value that selects.
func (c *trimmer) valueOf(in walk) []byte {
	switch kind := in.kind(); kind {
	case '"':
		if text := in.text(); c.encoding == JSON {
			return text
		} else {
			return bytes.Clone(text)
		}
	case '{', '[', 'n':
		in.skip()
		return nil
	default:
		text := in.scalar()
		if c.encoding == CBOR {
			text = asInJSON(text)
		}
		return []byte(text)
	}
}

// asInJSON returns a scalar of CBOR as kube-apiserver writes it in JSON, where fewer numbers have an exponent.
func asInJSON(scalar string) string {
	number, err := strconv.ParseFloat(scalar, 64)
	if err != nil || !strings.Contains(scalar, "e") {
		return scalar
	}
	text, _ := json.Marshal(number) // it is finite
	return string(text)
}

// message searches a message of protobuf, whose tag and length are at head. They are written anew if
// something is left out.
func (c *trimmer) message(head, body span, m *mask, keeping bool) {
	mark := len(c.splices)
	c.splices = append(c.splices, splice{head, []byte{}}) // which cut does not extend
	in := newCursor(c.object, body)
	for in.next() {
		before := len(c.splices)
		if c.field(&in, m.numbered(in.number), keeping) {
			c.splices = c.splices[:before]
			c.cut(in.field)
		}
	}
	if len(c.splices) == mark+1 || in.err != nil { // what is no message stays
		c.splices = c.splices[:mark]
		return
	}
	_, _, tag := protowire.ConsumeTag(c.object[head.start:])
	begin := len(c.heads)
	c.heads = append(c.heads, c.object[head.start:head.start+tag]...)
	c.heads = protowire.AppendVarint(c.heads, uint64(body.len()+grown(c.splices[mark+1:])))
	c.splices[mark].with = c.heads[begin:len(c.heads):len(c.heads)]
}

// field reads a field, and reports whether all of it is left out.
func (c *trimmer) field(in *cursor, m *mask, keeping bool) bool {
	leaves := c.leaves(m, keeping)
	switch {
	case m == nil:
	case m.value > 0:
		c.values[m.value-1] = m.text(in.varint, in.bytes())
	case len(m.below) == 0, in.typ != protowire.BytesType:
	case m.below[0].step.Number > 0:
		c.message(span{in.field.start, in.value.start}, in.value, m, keeping && !m.keep)
	default: // an entry of a map
		key, value := mapEntry(in)
		entry := m.named(key)
		if entry != nil && entry.value > 0 {
			c.values[entry.value-1] = entry.text(0, value)
		}
		return leaves || c.leaves(entry, keeping && !m.keep)
	}
	return leaves
}

// cborItemHead returns the head of a list item without its type.
func cborItemHead(object []byte, splices []splice) []byte {
	at := len(selfDescribed)
	_, entries, _, _ := itemHead(object[at:])
	if len(splices) > 0 && splices[0].old.start == at {
		_, entries, _, _ = itemHead(splices[0].with)
	}
	return appendItemHead(make([]byte, 0, 9), majorMap, entries-2)
}
