package framing

import "errors"

// UID returns metadata.uid, which differs for two objects that had the same name one after the
// other; "" if there is none. Each call reads it from the object's bytes.
func (o *Object) UID() string {
	switch o.encoding {
	case Protobuf:
		raw := mustOpen(o.Bytes(), int(o.item), tagRaw)
		id, _ := protobufIdentity(o.Bytes()[raw.start:raw.end])
		return string(id.UID)
	case CBOR:
		return uidOfCBOR(o.Bytes())
	}
	return uidOfJSON(o.Bytes())
}

var errFound = errors.New("found")

// uidOfJSON ignores errors: the object has been scanned before.
func uidOfJSON(object []byte) (uid string) {
	s := newJSONScanner(nil)
	s.reset(object)
	_, _ = s.members(func(name []byte) error {
		if string(name) != `"metadata"` {
			return s.dec.SkipValue()
		}
		_, err := s.members(func(name []byte) (err error) {
			if string(name) != `"uid"` {
				return s.dec.SkipValue()
			}
			if uid, err = s.text(); err == nil {
				err = errFound
			}
			return err
		})
		return err
	})
	return uid
}

func uidOfCBOR(object []byte) string {
	c := itemCursor{input: object}
	c.selfDescribed()
	for _, name := range c.entries() {
		if string(name) != "metadata" {
			c.skip()
			continue
		}
		for _, name := range c.entries() {
			if string(name) == "uid" {
				return string(c.text())
			}
			c.skip()
		}
	}
	return ""
}
