package framing_test

import (
	"bytes"
	"fmt"
	"slices"
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

// protobufConfigMap is the object of configMapEvent in about the same number of bytes, as a list's
// item.
func protobufConfigMap(size int) []byte {
	metadata := message(1,
		text(1, "settings-7"), text(2, ""), text(3, "team-a"), text(4, ""),
		text(5, "b4f6aeb2-220e-4db4-a146-9d2d40b7833d"), text(6, "123456"),
		varint(7, 0), message(8, varint(1, 1795405405), varint(2, 0)),
		message(11, text(1, "app.kubernetes.io/instance"), text(2, "settings-7")),
		message(11, text(1, "app.kubernetes.io/name"), text(2, "settings")),
		message(11, text(1, "tier"), text(2, "backend")),
		message(12, text(1, "checksum/config"), text(2, "8f14e45fceea167a5a36dedd4bea2543")),
		message(17, text(1, "kubectl"), text(2, "Update"), text(3, "v1"),
			message(4, varint(1, 1795405405), varint(2, 0)), text(6, "FieldsV1"),
			message(7, text(1, `{"f:data":{".":{},"f:app.yaml":{}},`+
				`"f:metadata":{"f:annotations":{".":{},"f:checksum/config":{}},`+
				`"f:labels":{".":{},"f:app.kubernetes.io/name":{}}}}`))))
	data := strings.Repeat("listen: 0.0.0.0:8080\nworkers: 16\nlog:\n  level: info\n", size/50+1)[:size-len(metadata)]
	return append(metadata, message(2, text(1, "app.yaml"), text(2, data))...)
}

// protobufPod is a running pod of 3.7 KB.
func protobufPod() []byte {
	metadata := message(1,
		text(1, "web-5d8f7c9b6d-x2x7k"), text(2, "web-5d8f7c9b6d-"), text(3, "team-a"), text(4, ""),
		text(5, "b4f6aeb2-220e-4db4-a146-9d2d40b7833d"),
		text(6, "123456"), varint(7, 0), message(8, varint(1, 1795405405), varint(2, 0)),
		message(11, text(1, "app"), text(2, "web")), message(11, text(1, "pod-template-hash"), text(2, "5d8f7c9b6d")),
		message(13, text(1, "ReplicaSet"), text(3, "web-5d8f7c9b6d"), text(4, "1f4068c4-e60d-452a-b544-7c9ec7a02880"),
			text(5, "apps/v1"), varint(6, 1)),
		message(17, text(1, "kube-controller-manager"),
			message(7, text(1, strings.Repeat(`{"f:spec":{"f:containers":{}}}`, 25)))),
		message(17, text(1, "kubelet"), message(7, text(1, strings.Repeat(`{"f:status":{"f:conditions":{}}}`, 25)))))
	condition := message(2, text(1, "PodReadyToStartContainers"), text(2, "True"), message(3),
		message(4, varint(1, 1795405405)), text(5, ""), text(6, ""))
	spec := message(2,
		message(1, text(1, "kube-api-access-x7k2l"), text(2, strings.Repeat("v", 200))),
		message(2, text(1, "web"), text(2, strings.Repeat("c", 800))),
		text(3, "Always"), varint(4, 30), text(6, "ClusterFirst"), text(8, "default"), text(9, "default"),
		text(10, "node-17"), varint(11, 0), varint(12, 0),
		varint(13, 0), message(14), text(16, ""), text(17, ""), text(19, "default-scheduler"),
		message(22, text(1, "node.kubernetes.io/not-ready")),
		varint(25, 0), varint(30, 1), text(31, "PreemptLowerPriority"))
	status := message(3, text(1, "Running"), bytes.Repeat(condition, 5), text(3, ""), text(4, ""), text(5, "10.0.0.17"),
		text(6, "10.244.1.7"), message(7, varint(1, 1795405405)), message(8, text(1, strings.Repeat("s", 300))),
		text(9, "Burstable"), text(11, ""), message(12, text(1, "10.244.1.7")))
	return slices.Concat(metadata, spec, status)
}

// benchEvent is an event of a ConfigMap, without a length before it.
func benchEvent(b *testing.B, e framing.Encoding, size int) []byte {
	if e == framing.Protobuf {
		return protobufEvent(b, "MODIFIED", protobufConfigMap(size))
	}
	return configMapEvent(size)
}

// benchEncodings runs f for each encoding that is measured.
func benchEncodings(b *testing.B, f func(b *testing.B, e framing.Encoding)) {
	for _, e := range []framing.Encoding{framing.JSON, framing.Protobuf} {
		b.Run("encoding="+e.String(), func(b *testing.B) { f(b, e) })
	}
}

func BenchmarkScannerEvent(b *testing.B) {
	benchEncodings(b, func(b *testing.B, e framing.Encoding) {
		bench := func(name string, fields []framing.Field, event []byte) {
			b.Run(name, func(b *testing.B) {
				s := framing.NewScanner(e, fields)
				b.SetBytes(int64(len(event)))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := s.Event(event); err != nil {
						b.Fatal(err)
					}
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N), "ns/event")
			})
		}
		for _, size := range []int{2 << 10, 16 << 10, 256 << 10} {
			bench("kind=ConfigMap/size="+kib(size), nil, benchEvent(b, e, size))
		}
		pod := protobufEvent(b, "MODIFIED", protobufPod())
		if e == framing.JSON {
			for _, c := range readTestdata(b) {
				if c.file == "pod" {
					pod = c.events("all")[4]
				}
			}
		}
		bench(fmt.Sprintf("kind=Pod/size=%dB/fields=0", len(pod)), nil, pod)
		bench(fmt.Sprintf("kind=Pod/size=%dB/fields=%d", len(pod), len(podFields)), podFields, pod)
	})
}

// BenchmarkListItem measures one object of a relist, without the network.
func BenchmarkListItem(b *testing.B) {
	benchEncodings(b, func(b *testing.B, e framing.Encoding) {
		const items = 1000
		item := protobufConfigMap(2 << 10)
		list := protobufList(listMeta("7", ""), bytes.Repeat(text(2, string(item)), items))
		typeMeta := message(1, text(1, "v1"), text(2, "ConfigMap"))
		if e == framing.JSON {
			item = bytes.TrimSuffix(configMapEvent(2 << 10)[len(`{"type":"MODIFIED","object":`):], []byte("}\n"))
			item = bytes.Replace(item, []byte(`"kind":"ConfigMap","apiVersion":"v1",`), nil, 1)
			list = []byte(`{"kind":"ConfigMapList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[` +
				strings.Repeat(string(item)+",", items-1) + string(item) + "]}\n")
			typeMeta = []byte(`"kind":"ConfigMap","apiVersion":"v1",`)
		}
		s := framing.NewScanner(e, nil)
		b.SetBytes(int64(len(item)))
		b.ReportAllocs()
		n := items
		var r framing.ListReader
		for b.Loop() {
			if n == items {
				r, n = framing.NewListReader(e, bytes.NewReader(list)), 0
			}
			raw, err := r.Next()
			if err == nil {
				_, err = s.Item(raw, typeMeta)
			}
			if err != nil {
				b.Fatal(err)
			}
			n++
		}
	})
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
	benchEncodings(b, func(b *testing.B, e framing.Encoding) {
		ev, err := framing.NewScanner(e, nil).Event(benchEvent(b, e, 2<<10))
		if err != nil {
			b.Fatal(err)
		}
		b.SetBytes(int64(ev.Object.Size()))
		b.ReportAllocs()
		for b.Loop() {
			ev.Object.Left(123457)
		}
	})
}

// The first client that wants a lean frame has it made.
func BenchmarkLeanFrame(b *testing.B) {
	o := scan(b, configMapEvent(2<<10)).Object
	b.ReportAllocs()
	for b.Loop() {
		o.TrimmedFrame(framing.Lean, framing.Deleted) // which is not kept, because the object arrived as MODIFIED
	}
}

// BenchmarkEventReader reads a stream of lines, or of messages with their lengths.
func BenchmarkEventReader(b *testing.B) {
	benchEncodings(b, func(b *testing.B, e framing.Encoding) {
		for _, size := range []int{2 << 10, 16 << 10, 256 << 10} {
			b.Run("size="+kib(size), func(b *testing.B) {
				event := configMapEvent(size)
				if e == framing.Protobuf {
					event = append([]byte{0, byte(size >> 16), byte(size >> 8), byte(size)}, make([]byte, size)...)
				}
				r := framing.NewEventReader(e, endless{event, new(int)})
				b.SetBytes(int64(size))
				b.ReportAllocs()
				for b.Loop() {
					if _, err := r.Next(); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	})
}

// endless repeats an event.
type endless struct {
	line []byte
	at   *int
}

func (e endless) Read(p []byte) (int, error) {
	n := copy(p, e.line[*e.at:])
	*e.at = (*e.at + n) % len(e.line)
	return n, nil
}
