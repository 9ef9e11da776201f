package framing

// UID returns metadata.uid, by which an object is told from another that has taken its name; "" where there is none. It is read out of the object's
// bytes each time.
func (o *Object) UID() string {
	switch o.encoding {
	case Protobuf:
		return uidOfProtobuf(o.Bytes(), int(o.item))
	case CBOR:
		return uidOfCBOR(o.Bytes())
	}
	return uidOfJSON(o.Bytes())
}

func uidOfJSON(object []byte) (uid string) {
	s := newJSONScanner(nil)
	s.reset(object)
	_, err := s.members(func(name []byte) error {
		if string(name) != `"metadata"` {
			return s.dec.SkipValue()
		}
		_, err := s.members(func(name []byte) (err error) {
			if string(name) != `"uid"` {
				return s.dec.SkipValue()
			}
			uid, err = s.text()
			return err
		})
		return err
	})
	if err != nil {
		return "" // of an object that has been scanned before, so there is none
	}
	return uid
}

func uidOfProtobuf(object []byte, item int) (uid string) {
	raw := mustOpen(object, item, tagRaw)
	c := newCursor(object, mustOpen(object, raw.start, tagMetadata))
	for c.next() {
		if c.number == metaUID {
			uid = c.text()
		}
	}
	return uid
}

func uidOfCBOR(object []byte) (uid string) {
	c := itemCursor{input: object}
	c.selfDescribed()
	for _, name := range c.entries() {
		if string(name) != "metadata" {
			c.skip()
			continue
		}
		for _, name := range c.entries() {
			if string(name) != "uid" {
				c.skip()
				continue
			}
			uid = string(c.text())
		}
	}
	return uid
}
