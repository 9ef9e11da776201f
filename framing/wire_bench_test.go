package framing_test

import (
	"bytes"
	"testing"

	"github.com/watchfan/watchfan/framing"
)

// sample returns n bytes of what kube-apiserver has sent.
func sample(t testing.TB, n int) []byte {
	pods := readTestdata(t)[9].bytes("all")
	return bytes.Repeat(pods, n/len(pods)+1)[:n]
}

// BenchmarkPod measures what is done with a captured pod in each encoding: reading its event, with
// selectable fields and without, reading it as an item of a list, and making the frames that are not
// kept.
func BenchmarkPod(b *testing.B) {
	for _, r := range []representation{asJSON, asProtobuf, asCBOR} {
		for _, c := range r.captured(b) {
			if c.file != "pod" {
				continue
			}
			event, _ := framing.NewEventReader(r.encoding, bytes.NewReader(c.events("all")[4])).Next()
			items, _, err := readItems(r.encoding, bytes.NewReader(c.bytes("list")))
			if err != nil {
				b.Fatal(err)
			}
			o, typeMeta := scanAs(b, r.encoding, event).Object, c.form(b).TypeMeta("Pod")
			bare, fields := framing.NewScanner(r.encoding, nil), framing.NewScanner(r.encoding, podFields)
			for name, f := range map[string]func() error{
				"event":             func() error { _, err := bare.Event(event); return err },
				"event of 5 fields": func() error { _, err := fields.Event(event); return err },
				"item":              func() error { _, err := bare.Item(items[0], typeMeta); return err },
				"left":              func() error { o.Left(123457); return nil },
				"lean":              func() error { o.TrimmedFrame(framing.Lean, framing.Deleted); return nil },
			} {
				b.Run(r.encoding.String()+"/"+name, func(b *testing.B) {
					b.SetBytes(int64(len(event)))
					b.ReportAllocs()
					for b.Loop() {
						if err := f(); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}
