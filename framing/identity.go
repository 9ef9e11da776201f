package framing

import (
	"errors"
	"fmt"
)

// Identity tells one version of an object from all others of its collection.
type Identity struct {
	// Namespace and Name make the object's key. Namespace is empty in cluster scope.
	Namespace, Name []byte
	// UID differs for two objects that had the same name one after the other; empty if there is
	// none.
	UID             []byte
	ResourceVersion uint64
}

// AppendKey appends the object's key ([Object.Key]) to dst.
func (id Identity) AppendKey(dst []byte) []byte {
	if len(id.Namespace) > 0 {
		dst = append(append(dst, id.Namespace...), '/')
	}
	return append(dst, id.Name...)
}

// Identity reads the identity of an item, as [ReadList] yields it. The result is valid as long as item
// is. In protobuf nothing else is read, and an item costs no allocation. In the others it costs what Item
// does.
func (s Scanner) Identity(item []byte) (id Identity, err error) {
	if _, ok := s.reader.(*protobufScanner); ok {
		id, err = protobufIdentity(item)
		if err != nil {
			err = fmt.Errorf("read list item: %w", err)
		}
		return id, err
	}
	o, err := s.Item(item, nil)
	if err != nil {
		return Identity{}, err
	}
	return Identity{[]byte(o.Namespace), []byte(o.Name), []byte(o.UID()), o.ResourceVersion}, nil
}

// protobufIdentity reads the fields of an item's metadata, which must come first.
func protobufIdentity(item []byte) (id Identity, err error) {
	metadata, err := open(item, 0, len(item), tagMetadata)
	if err != nil {
		return Identity{}, err
	}
	var version scanned
	c := newCursor(item, metadata)
	for c.next() {
		switch c.number {
		case metaName:
			id.Name = c.textBytes()
		case metaNamespace:
			id.Namespace = c.textBytes()
		case metaUID:
			id.UID = c.textBytes()
		case metaResourceVersion:
			readResourceVersion(&c, &version)
		}
	}
	id.ResourceVersion = version.rv
	switch {
	case c.err != nil:
		return Identity{}, c.err
	case len(id.Name) == 0:
		return Identity{}, errors.New("object without metadata.name")
	case version.rv == 0:
		return Identity{}, errors.New("object without metadata.resourceVersion")
	}
	return id, nil
}

// UID returns metadata.uid, which differs for two objects that had the same name one after the
// other; "" if there is none. Each call reads it from the object's bytes.
func (o *Object) UID() string {
	if o.encoding == Protobuf {
		raw := mustOpen(o.held(), int(o.item), tagRaw)
		id, _ := protobufIdentity(o.held()[raw.start:raw.end])
		return string(id.UID)
	}
	in := newValues(o.encoding, nil)
	in.reset(o.held())
	in.tag()
	return string(textAt(in, metadataName, "uid"))
}

// HashOf returns the hash of a field's value that a shardSelector compares with its ranges: FNV-1a
// with 64 bits (KEP-5866; k8s.io/apimachinery/pkg/sharding/hash.go). It allocates nothing.
func HashOf[T ~string | ~[]byte](value T) uint64 {
	hash := uint64(hashOfNothing)
	for i := range len(value) {
		hash = (hash ^ uint64(value[i])) * hashPrime
	}
	return hash
}

// hashOfNothing is the hash of "".
const (
	hashOfNothing = 0xcbf29ce484222325
	hashPrime     = 0x100000001b3
)

// UIDHash returns [HashOf] metadata.uid, or of "" if there is none. It costs nothing: scanners note
// it beside the resourceVersion.
func (o *Object) UIDHash() uint64 { return o.uidHash }
