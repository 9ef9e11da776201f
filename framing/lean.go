package framing

// Lean leaves out metadata.managedFields, which may be half of an object's bytes. Clients ask for
// it with drop=metadata.managedFields in their Accept header (KEP-5958). Objects know where it is,
// so nothing is searched for. A lean object is spliced from the bytes of the whole object, and
// shares those after managedFields with it:
//
//	┌ of the lean frame alone ──────────────────────────┐   ┌ of the whole object ┐
//	<size>⏎{"type":"ADDED","object":{…,"metadata":{"name":"x"    },"spec":{…}}}⏎⏎
//	└ Head                                              ┘   └ Body                ┘
//
// The metadata comes early in most objects, so a lean frame takes little memory of its own.
var Lean = NewTrim(Drop{Fields: [][]string{managedFieldsPath}})

// hasManaged reports whether there are managedFields.
func (l layout) hasManaged() bool { return l.managedEnd > l.managedStart }

// spliceBuffer has room for what makes an object lean.
type spliceBuffer [2]splice

// leanSplices appends what makes the object lean to dst; nothing if it has no managedFields. In
// protobuf the lengths of the messages around managedFields change too, in CBOR the number of the
// metadata's entries.
func (o *Object) leanSplices(dst []splice) []splice {
	if !o.hasManaged() {
		return dst
	}
	object, cut := o.Bytes(), span{int(o.managedStart), int(o.managedEnd)}
	switch o.encoding {
	case Protobuf:
		old, headers := o.protobufHeaders(object, -cut.len())
		dst = append(dst, splice{old, headers})
	case CBOR:
		at := int(o.metadata)
		_, entries, size, _ := itemHead(object[at:]) // it has been read before
		head := appendItemHead(make([]byte, 0, 9), majorMap, entries-1)
		dst = append(dst, splice{span{at, at + size}, head})
	}
	return append(dst, splice{old: cut})
}
