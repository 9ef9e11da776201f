package framing_test

import (
	"bytes"
	"cmp"
	"encoding/base64"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/framing"
)

// representation is one way to ask for objects.
type representation struct {
	dir      string // in testdata
	encoding framing.Encoding
	accept   string
	metadata bool // PartialObjectMetadata instead of the objects
}

var (
	asJSON     = representation{"", framing.JSON, "application/json", false}
	asProtobuf = representation{"protobuf", framing.Protobuf, "application/vnd.kubernetes.protobuf", false}
	// These two have a Go type that is the same for all kinds, so three kinds are enough.
	asMetadata         = representation{"metadata", framing.JSON, asJSON.accept, true}
	asProtobufMetadata = representation{"metadata-protobuf", framing.Protobuf, asProtobuf.accept, true}
	// The peculiarities of CBOR are the same for all kinds, too.
	asCBOR         = representation{"cbor", framing.CBOR, "application/cbor", false}
	asCBORMetadata = representation{"metadata-cbor", framing.CBOR, asCBOR.accept, true}
)

// specimen is one kind to capture.
type specimen struct {
	file       string
	collection string // path
	object     string // JSON of an object without its metadata
	change     string // a merge patch that changes more than metadata
	dying      int    // how many events a deletion has before its DELETED
}

var specimens = []specimen{
	{"configmap", "/api/v1/namespaces/golden/configmaps",
		`"data":{"b":"2 < 3 & \"x\" \u2028 ☃","a":"one\ntwo"},"binaryData":{"z":"AAECAw=="}`,
		`{"data":{"a":"three"}}`, 0},
	{"pod", "/api/v1/namespaces/golden/pods",
		`"spec":{"nodeName":"n1","serviceAccountName":"sa","automountServiceAccountToken":false,` +
			`"containers":[{"name":"c","image":"busybox","env":[{"name":"E","value":"v"}],` +
			`"resources":{"limits":{"cpu":"100m"}}}]}`,
		`{"spec":{"activeDeadlineSeconds":600}}`, 1},
	{"node", "/api/v1/nodes", `"spec":{"podCIDR":"10.0.0.0/24"}`, `{"spec":{"unschedulable":true}}`, 0},
	{"deployment", "/apis/apps/v1/namespaces/golden/deployments",
		`"spec":{"replicas":2,"selector":{"matchLabels":{"app":"x"}},"template":{"metadata":{"labels":{"app":"x"}},` +
			`"spec":{"containers":[{"name":"c","image":"busybox"}]}}}`,
		`{"spec":{"replicas":3}}`, 0},
	{"daemonset", "/apis/apps/v1/namespaces/golden/daemonsets",
		`"spec":{"selector":{"matchLabels":{"app":"x"}},"template":{"metadata":{"labels":{"app":"x"}},` +
			`"spec":{"containers":[{"name":"c","image":"busybox"}]}}}`,
		`{"spec":{"minReadySeconds":3}}`, 0},
	{"event", "/api/v1/namespaces/golden/events",
		`"involvedObject":{"kind":"Pod","namespace":"golden","name":"p"},"reason":"Tested","message":"m",` +
			`"type":"Normal","source":{"component":"test"},"firstTimestamp":"2026-01-02T03:04:05Z",` +
			`"lastTimestamp":"2026-01-02T03:04:05Z","count":1`,
		`{"count":2}`, 0},
	{"lease", "/apis/coordination.k8s.io/v1/namespaces/golden/leases",
		`"spec":{"holderIdentity":"h","leaseDurationSeconds":40,"renewTime":"2026-01-02T03:04:05.000006Z"}`,
		`{"spec":{"renewTime":"2026-01-02T03:04:15.000006Z"}}`, 0},
	{"endpointslice", "/apis/discovery.k8s.io/v1/namespaces/golden/endpointslices",
		`"addressType":"IPv4","endpoints":[{"addresses":["10.0.0.1"],"conditions":{"ready":true}}],` +
			`"ports":[{"name":"","port":80,"protocol":"TCP"}]`,
		`{"endpoints":[]}`, 0},
	{"clusterrolebinding", "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
		`"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"u"}],` +
			`"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"view"}`,
		`{"subjects":[{"kind":"User","apiGroup":"rbac.authorization.k8s.io","name":"w"}]}`, 0},
	{"customresource", "/apis/ex.io/v1/namespaces/golden/foos",
		`"Zed":{"first":true},"spec":{"c":"red","n":9007199254740993,"on":true},"list":[{"v":"x<y"}]`,
		`{"spec":{"c":"blue"}}`, 0},
}

// representations returns the representations in which a kind is captured.
func (s specimen) representations() []representation {
	switch s.file {
	case "customresource":
		return []representation{asJSON, asMetadata, asProtobufMetadata, asCBOR, asCBORMetadata}
	case "pod":
		return []representation{asJSON, asProtobuf, asMetadata, asProtobufMetadata, asCBOR, asCBORMetadata}
	case "daemonset":
		return []representation{asJSON, asProtobuf, asMetadata, asProtobufMetadata}
	case "configmap":
		return []representation{asJSON, asProtobuf, asCBOR}
	}
	return []representation{asJSON, asProtobuf}
}

// captured is the sections of one file of testdata.
type captured struct {
	representation
	file     string
	sections map[string][][]byte
}

// String returns the file's name within testdata.
func (c captured) String() string { return filepath.Join(c.dir, c.file) }

// events returns the events of a section as they were in the stream: lines with their newlines, or
// messages with their lengths.
func (c captured) events(section string) [][]byte { return c.sections[section] }

// bytes returns all bytes of a section.
func (c captured) bytes(section string) []byte { return bytes.Join(c.sections[section], nil) }

// readTestdata returns what was captured as JSON.
func readTestdata(t testing.TB) []captured { return asJSON.captured(t) }

// readEverything returns what was captured in all representations.
func readEverything(t testing.TB) []captured {
	return slices.Concat(asJSON.captured(t), asProtobuf.captured(t), asMetadata.captured(t),
		asProtobufMetadata.captured(t),
		asCBOR.captured(t), asCBORMetadata.captured(t))
}

// captured returns the files of a representation, at least one for each specimen.
func (r representation) captured(t testing.TB) []captured {
	t.Helper()
	want := 0
	for _, s := range specimens {
		if slices.Contains(s.representations(), r) {
			want++
		}
	}
	paths, err := filepath.Glob(filepath.Join("testdata", r.dir, "*.txt"))
	if err != nil || len(paths) < want {
		t.Fatalf("found %d files in testdata/%s, want %d or more: %v", len(paths), r.dir, want, err)
	}
	var files []captured
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		c := captured{r, strings.TrimSuffix(filepath.Base(path), ".txt"), make(map[string][][]byte)}
		name := ""
		for line := range bytes.Lines(data) {
			if rest, ok := bytes.CutPrefix(line, []byte("-- ")); ok {
				name = string(bytes.TrimSuffix(rest, []byte(" --\n")))
				continue
			}
			if r.encoding != framing.JSON {
				if line, err = base64.StdEncoding.AppendDecode(nil, bytes.TrimSpace(line)); err != nil {
					t.Fatalf("%s: %v", path, err)
				}
			}
			c.sections[name] = append(c.sections[name], line)
		}
		files = append(files, c)
	}
	slices.SortFunc(files, func(a, b captured) int { return cmp.Compare(a.file, b.file) })
	return files
}
