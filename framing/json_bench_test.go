package framing_test

import (
	"bytes"
	"fmt"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/framing"
)

// configMapEvent is a MODIFIED line of size bytes, with an application's ConfigMap.
func configMapEvent(size int) []byte {
	const head = `{"type":"MODIFIED","object":{"kind":"ConfigMap","apiVersion":"v1","metadata":{"name":"settings-7",` +
		`"namespace":"team-a","uid":"b4f6aeb2-220e-4db4-a146-9d2d40b7833d","resourceVersion":"123456",` +
		`"creationTimestamp":"2026-11-21T03:43:25Z",` +
		`"labels":{"app.kubernetes.io/name":"settings","app.kubernetes.io/instance":"settings-7","tier":"backend"},` +
		`"annotations":{"checksum/config":"8f14e45fceea167a5a36dedd4bea2543"},"managedFields":[{"manager":"kubectl",` +
		`"operation":"Update","apiVersion":"v1","time":"2026-11-21T03:43:25Z","fieldsType":"FieldsV1",` +
		`"fieldsV1":{"f:data":{".":{},"f:app.yaml":{}},` +
		`"f:metadata":{"f:annotations":{".":{},"f:checksum/config":{}},"f:labels":{".":{},` +
		`"f:app.kubernetes.io/name":{}}}}}]},"data":{"app.yaml":"`
	const tail = `"}}}` + "\n"
	const text = `listen: 0.0.0.0:8080\nworkers: 16\nlog:\n  level: info\n`
	n := size - len(head) - len(tail)
	body := strings.Repeat(text, n/len(text)) + strings.Repeat("#", n%len(text))
	return []byte(head + body + tail)
}

func kib(n int) string { return fmt.Sprintf("%dKiB", n>>10) }

func BenchmarkScannerEvent(b *testing.B) {
	bench := func(name string, fields []framing.Field, line []byte) {
		b.Run(name, func(b *testing.B) {
			s := framing.NewScanner(framing.JSON, fields)
			b.SetBytes(int64(len(line)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := s.Event(line); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N), "ns/event")
		})
	}
	for _, size := range []int{2 << 10, 16 << 10, 256 << 10} {
		bench("kind=ConfigMap/size="+kib(size), nil, configMapEvent(size))
	}
	for _, c := range readTestdata(b) {
		if c.file == "pod" {
			line := c.events("all")[4]
			bench(fmt.Sprintf("kind=Pod/size=%dB/fields=0", len(line)), nil, line)
			bench(fmt.Sprintf("kind=Pod/size=%dB/fields=%d", len(line), len(podFields)), podFields, line)
		}
	}
}

// BenchmarkListItem measures one object of a relist, without the network.
func BenchmarkListItem(b *testing.B) {
	const items = 1000
	item := bytes.TrimSuffix(configMapEvent(2 << 10)[len(`{"type":"MODIFIED","object":`):], []byte("}\n"))
	item = bytes.Replace(item, []byte(`"kind":"ConfigMap","apiVersion":"v1",`), nil, 1)
	list := `{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[` +
		strings.Repeat(string(item)+",", items-1) + string(item) + "]}\n"
	form, _, err := framing.ParseListForm(framing.JSON, []byte(list))
	if err != nil {
		b.Fatal(err)
	}
	typeMeta := form.TypeMeta("ConfigMap")
	s := framing.NewScanner(framing.JSON, nil)
	b.SetBytes(int64(len(item)))
	b.ReportAllocs()
	n := items
	var r framing.ListReader
	for b.Loop() {
		if n == items {
			r, n = framing.NewListReader(framing.JSON, strings.NewReader(list)), 0
		}
		raw, err := r.Next()
		if err != nil {
			b.Fatal(err)
		}
		if _, err := s.Item(raw, typeMeta); err != nil {
			b.Fatal(err)
		}
		n++
	}
}

// BenchmarkListAssemble measures one object that is written into a list.
func BenchmarkListAssemble(b *testing.B) {
	o := scan(b, configMapEvent(2<<10)).Object
	form, _, err := framing.ParseListForm(framing.JSON,
		[]byte(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`+"\n"))
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		open, rest := form.Item(o, false)
		if len(open) == 0 || len(rest) == 0 {
			b.Fatal("empty item")
		}
	}
}

func BenchmarkLeft(b *testing.B) {
	o := scan(b, configMapEvent(2<<10)).Object
	b.SetBytes(int64(o.Size()))
	b.ReportAllocs()
	for b.Loop() {
		o.Left(123457)
	}
}

// The first client that wants a lean frame has it made.
func BenchmarkLeanFrame(b *testing.B) {
	o := scan(b, configMapEvent(2<<10)).Object
	b.ReportAllocs()
	for b.Loop() {
		o.TrimmedFrame(framing.Lean, framing.Deleted) // which is not kept, because the object arrived as MODIFIED
	}
}

func BenchmarkLineReader(b *testing.B) {
	for _, size := range []int{2 << 10, 16 << 10, 256 << 10} {
		b.Run("size="+kib(size), func(b *testing.B) {
			line := configMapEvent(size)
			r := framing.NewEventReader(framing.JSON, endless{line, new(int)})
			b.SetBytes(int64(size))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := r.Next(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// endless repeats a line.
type endless struct {
	line []byte
	at   *int
}

func (e endless) Read(p []byte) (int, error) {
	n := copy(p, e.line[*e.at:])
	*e.at = (*e.at + n) % len(e.line)
	return n, nil
}
