package framing_test

import (
	"bytes"
	"slices"
	"testing"

	"github.com/watchfan/watchfan/framing"
)

// In every representation, a packed object says what the object says, byte for byte, and is smaller.
func TestPacking(t *testing.T) {
	packed := make(map[framing.Encoding]int)
	for _, c := range readEverything(t) {
		t.Run(c.String(), func(t *testing.T) {
			form, objects := c.form(t), c.objects(t)
			if body := c.bytes("list"); len(body) > 0 {
				listed, _ := c.readList(t, form, body)
				objects = append(objects, listed...)
			}
			p := framing.NewPacking(objects[:1])
			for _, whole := range objects {
				for _, o := range []*framing.Object{whole, whole.As(framing.Modified)} {
					if got := p.Pack(o); got.Packed() {
						packed[c.encoding]++
						checkPacked(t, c, form, got, o)
						checkTrim(t, c, form, got, nil, []framing.Drop{leanOnly})
					} else if got != o {
						t.Error("an object that is not packed is another one")
					}
				}
			}
		})
	}
	for _, e := range []framing.Encoding{framing.JSON, framing.Protobuf, framing.CBOR} {
		if packed[e] == 0 {
			t.Errorf("%v: nothing was packed", e)
		}
	}
}

// checkPacked compares a packed object with the object.
func checkPacked(t *testing.T, c captured, form framing.ListForm, packed, o *framing.Object) {
	t.Helper()
	if packed.Size() >= o.Size() {
		t.Errorf("%d bytes, packed %d", o.Size(), packed.Size())
	}
	if packed.Whole().Packed() || o.Whole() != o || packed.UID() != o.UID() || packed.UIDHash() != o.UIDHash() {
		t.Error("it is another object")
	}
	trims := []*framing.Trim{nil, framing.Lean, trimOf(c.encoding, nil, []framing.Drop{bareMetadata})}
	if c.encoding != framing.Protobuf {
		trims = append(trims, trimOf(c.encoding, []string{"spec"}, nil))
	}
	all := func(o *framing.Object) (all [][]byte) {
		for _, trim := range trims {
			for _, typ := range []framing.EventType{framing.Added, framing.Modified, framing.Deleted} {
				all = append(all, payload(t, o.TrimmedFrame(trim, typ)))
			}
			all = append(all, payload(t, o.TrimmedLeft(trim, 1234567)), bytes.Join(o.AppendTrimmed(nil, trim), nil),
				bytes.Join(form.AppendItem(nil, trim, o, true), nil))
		}
		return append(append(all, form.AppendItem(nil, nil, o, false)...), o.Bytes(), payload(t, o.Frame(framing.Added)), payload(t, o.Left(1234567)),
			o.As(framing.Deleted).Bytes(), o.Deleted(1234567).Bytes(), payload(t, o.Deleted(7).Frame(framing.Deleted)))
	}
	if got, want := all(packed), all(o); !slices.EqualFunc(got, want, bytes.Equal) {
		t.Errorf("packed it is\n%q\nwant\n%q", got, want)
	}
	quiet := framing.Lean.With(nil, true)
	if !packed.In(quiet, nil) || !packed.SameIn(quiet, o) || !o.SameIn(quiet, packed) {
		t.Error("it differs in a view")
	}
}
