package framing_test

import (
	"bytes"
	"encoding/json"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"unsafe"

	"github.com/go-json-experiment/json/jsontext"
	"google.golang.org/protobuf/encoding/protowire"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/watchfan/watchfan/framing"
)

// dropping leaves out the fields at paths, whose names have commas between them.
func dropping(paths ...string) framing.Drop { return framing.Drop{Fields: pathsOf(paths)} }

func pathsOf(texts []string) (paths []framing.Path) {
	for _, text := range texts {
		paths = append(paths, framing.Names(strings.Split(text, ",")...))
	}
	return paths
}

// identity are the paths that every Shape with Keep has.
var identity = []string{"kind", "apiVersion", "metadata,name", "metadata,namespace", "metadata,uid", "metadata,resourceVersion", "metadata,labels"}

// metadataNumbers are the numbers of the fields of metadata that tests leave out (k8s.io/apimachinery/pkg/apis/meta/v1,
// generated.proto).
var metadataNumbers = map[string]protowire.Number{"metadata": 1, "annotations": 12, "ownerReferences": 13, "finalizers": 14, "managedFields": 17}

// trimOf returns the Trim of keep and drops in an encoding. It is Lean for what that leaves out.
func trimOf(e framing.Encoding, keep []string, drops []framing.Drop) *framing.Trim {
	if keep == nil && reflect.DeepEqual(drops, []framing.Drop{leanOnly}) {
		return framing.Lean
	}
	s := framing.Shape{Drops: slices.Clone(drops)}
	if keep != nil {
		s.Keep = pathsOf(slices.Concat(identity, keep))
	}
	for i, d := range s.Drops {
		for j, path := range d.Fields {
			if e != framing.Protobuf {
				break
			}
			if j == 0 {
				s.Drops[i].Fields = slices.Clone(d.Fields)
			}
			path = slices.Clone(path)
			for k := range path[:min(2, len(path))] {
				path[k] = framing.Step{Number: metadataNumbers[path[k].Name]}
			}
			s.Drops[i].Fields[j] = path
		}
	}
	return s.Trim()
}

// droppedPaths returns the paths of drops that select an object with these labels.
func droppedPaths(drops []framing.Drop, labels map[string]string) (paths []framing.Path) {
	for _, d := range drops {
		if d.Selects == nil || d.Selects(labels) {
			paths = append(paths, d.Fields...)
		}
	}
	return paths
}

// below returns the paths that lead below a member, and whether one leads to it.
func below(paths []framing.Path, name string) (rest []framing.Path, to bool) {
	for _, path := range paths {
		if path[0].Name == name && len(path) > 1 {
			rest = append(rest, path[1:])
		}
		to = to || path[0].Name == name && len(path) == 1
	}
	return rest, to
}

// trimmedJSON returns a JSON object without the members at the paths of drop, and if keep is not nil with
// only those at its paths, member by member. Annotations of which none is left are left out. at is the
// path of the object itself.
func trimmedJSON(t testing.TB, object []byte, keep, drop []framing.Path, at ...string) []byte {
	t.Helper()
	return rewritten(t, object, func(quoted string, value []byte) ([]byte, bool) {
		var name string
		if err := json.Unmarshal([]byte(quoted), &name); err != nil {
			t.Fatal(err)
		}
		dropBelow, dropped := below(drop, name)
		keepBelow, kept := below(keep, name)
		if keep == nil || kept {
			keepBelow, kept = nil, true
		}
		switch {
		case dropped, !kept && len(keepBelow) == 0:
			return nil, false
		case len(dropBelow)+len(keepBelow) == 0:
			return value, true
		case value[0] == '[':
			return trimmedElements(t, value, keepBelow, dropBelow), true
		case value[0] != '{':
			return value, kept
		}
		in := append(slices.Clone(at), name)
		trimmed := trimmedJSON(t, value, keepBelow, dropBelow, in...)
		return trimmed, !slices.Equal(in, annotationsPath) || string(trimmed) != "{}" || string(bytes.Join(bytes.Fields(value), nil)) == "{}"
	})
}

// trimmedElements is trimmedJSON for the objects in an array.
func trimmedElements(t testing.TB, array []byte, keep, drop []framing.Path) []byte {
	t.Helper()
	var elements []json.RawMessage
	if err := json.Unmarshal(array, &elements); err != nil {
		t.Fatal(err)
	}
	var all [][]byte
	for _, e := range elements {
		if e[0] == '{' {
			e = trimmedJSON(t, e, keep, drop, "in a list")
		}
		all = append(all, e)
	}
	return slices.Concat([]byte("["), bytes.Join(all, []byte(",")), []byte("]"))
}

var annotationsPath = []string{"metadata", "annotations"}

// rewritten returns a JSON object with the values that f returns for its members, as they are
// written, and without those for which f reports false.
func rewritten(t testing.TB, object []byte, f func(name string, value []byte) ([]byte, bool)) []byte {
	t.Helper()
	dec := jsontext.NewDecoder(bytes.NewReader(object),
		jsontext.AllowDuplicateNames(true), jsontext.AllowInvalidUTF8(true))
	read := func(v jsontext.Value, err error) []byte {
		if err != nil {
			t.Fatalf("%v\nin %.300q", err, object)
		}
		return bytes.Clone(v)
	}
	if tok, err := dec.ReadToken(); err != nil || tok.Kind() != '{' {
		t.Fatalf("no object: %.300q", object)
	}
	var members [][]byte
	for dec.PeekKind() != '}' {
		name := read(dec.ReadValue())
		if value, ok := f(string(name), read(dec.ReadValue())); ok {
			members = append(members, slices.Concat(name, []byte(":"), value))
		}
	}
	return slices.Concat([]byte("{"), bytes.Join(members, []byte(",")), []byte("}"))
}

// trimmedMap removes the entries at the paths from a decoded object.
func trimmedMap(object map[string]any, keep, drop []framing.Path, at ...string) {
	for name, value := range object {
		dropBelow, dropped := below(drop, name)
		keepBelow, kept := below(keep, name)
		if keep == nil || kept {
			keepBelow, kept = nil, true
		}
		in := append(slices.Clone(at), name)
		switch inner, isMap := value.(map[string]any); {
		case dropped, !kept && len(keepBelow) == 0:
			delete(object, name)
		case len(dropBelow)+len(keepBelow) == 0:
		case isMap:
			before := len(inner)
			if trimmedMap(inner, keepBelow, dropBelow, in...); len(inner) == 0 && before > 0 && slices.Equal(in, annotationsPath) {
				delete(object, name)
			}
		default:
			list, isList := value.([]any)
			for _, element := range list {
				if inner, ok := element.(map[string]any); ok {
					trimmedMap(inner, keepBelow, dropBelow, "in a list")
				}
			}
			if !isList && !kept {
				delete(object, name)
			}
		}
	}
}

// trimmedMessage returns an object in protobuf without fields of its metadata, which apimachinery's
// types know.
func trimmedMessage(t testing.TB, object []byte, paths []framing.Path) []byte {
	t.Helper()
	var u runtime.Unknown
	if err := u.Unmarshal(bytes.TrimPrefix(object, []byte("k8s\x00"))); err != nil {
		t.Fatal(err)
	}
	n := fieldLen(t, u.Raw)
	var o metav1.PartialObjectMetadata
	if err := o.Unmarshal(u.Raw[:n]); err != nil {
		t.Fatal(err)
	}
	for _, path := range paths {
		switch path[1].Name {
		case "managedFields":
			o.ManagedFields = nil
		case "finalizers":
			o.Finalizers = nil
		case "ownerReferences":
			o.OwnerReferences = nil
		case "annotations":
			delete(o.Annotations, path[2].Name)
		default:
			t.Fatalf("%v", path)
		}
	}
	metadata, err := o.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	u.Raw = append(metadata, u.Raw[n:]...)
	b, err := u.Marshal()
	if err != nil {
		t.Fatal(err)
	}
	return append([]byte("k8s\x00"), b...)
}

// checkTrim compares all forms of an object without fields with each other, and the object itself
// with the paths that it must lack.
func checkTrim(t testing.TB, c captured, form framing.ListForm, o *framing.Object, keep []string, drops []framing.Drop) {
	t.Helper()
	trim, paths := trimOf(c.encoding, keep, drops), droppedPaths(drops, o.Labels)
	var kept []framing.Path
	if keep != nil {
		kept = pathsOf(slices.Concat(identity, keep))
	}
	got := bytes.Join(o.AppendTrimmed(nil, trim), nil)
	switch c.encoding {
	case framing.JSON:
		want := trimmedJSON(t, o.Bytes(), kept, paths)
		if !bytes.Equal(got, want) && (c.file != "" || !bytes.Equal(compact(t, got), compact(t, want))) {
			t.Fatalf("without %v:\n got %q\nwant %q", paths, got, want)
		}
	case framing.Protobuf:
		if c.file == "" { // apimachinery's types would not have written it, or cannot read it
			break
		}
		if want := trimmedMessage(t, o.Bytes(), paths); !bytes.Equal(got, want) {
			t.Fatalf("without %v:\n got %q\nwant %q", paths, got, want)
		}
	case framing.CBOR:
		want := decodeCBOR(t, o.Bytes()).(map[string]any)
		trimmedMap(want, kept, paths)
		if !reflect.DeepEqual(decodeCBOR(t, got), any(want)) {
			t.Fatalf("without %v:\n got %q\nwant %v", paths, got, want)
		}
	}
	for _, typ := range []framing.EventType{framing.Added, framing.Modified, framing.Deleted} {
		f := o.TrimmedFrame(trim, typ)
		ev := c.scan(t, payload(t, f))
		if l := ev.Object; ev.Type != typ || !bytes.Equal(l.Bytes(), got) || l.Key != o.Key || l.UID() != o.UID() ||
			l.ResourceVersion != o.ResourceVersion || !reflect.DeepEqual(l.Labels, o.Labels) {
			t.Fatalf("%s: got %q\nwant %q", typ, l.Bytes(), got)
		}
		if a, b := o.TrimmedFrame(trim, framing.Added), o.TrimmedFrame(trim, framing.Added); a.Start() != b.Start() {
			t.Fatal("ADDED is not shared")
		}
		as := o.As(typ)
		if a, b := as.TrimmedFrame(trim, typ), as.TrimmedFrame(trim, typ); a.Start() != b.Start() {
			t.Fatalf("%s is not shared", typ)
		}
		if !bytes.Equal(payload(t, as.TrimmedFrame(trim, typ)), payload(t, f)) {
			t.Fatalf("made to be %s: %q", typ, payload(t, as.TrimmedFrame(trim, typ)))
		}
	}
	trimmed := c.scan(t, payload(t, o.TrimmedFrame(trim, framing.Added))).Object
	if trimmed.TrimmedFrame(trim, framing.Added).Start() != trimmed.Frame(framing.Added).Start() {
		t.Fatal("an object without the fields has a frame of its own")
	}
	const rv = 12345678901234567
	left := payload(t, trimmed.Left(rv))
	for _, f := range []framing.Frame{o.TrimmedLeft(trim, rv), o.Deleted(rv).TrimmedFrame(trim, framing.Deleted), o.Deleted(1).TrimmedLeft(trim, rv)} {
		if got := payload(t, f); !bytes.Equal(got, left) {
			t.Fatalf("left as %q\nwant %q", got, left)
		}
	}
	if c.file == "" && c.encoding == framing.JSON && typedItem(t, form, o) { // of a fuzz target
		return
	}
	for _, first := range []bool{true, false} {
		want := bytes.Join(form.AppendItem(nil, nil, trimmed, first), nil)
		if got := bytes.Join(form.AppendItem(nil, trim, o, first), nil); !bytes.Equal(got, want) {
			t.Fatalf("item %q\nwant %q", got, want)
		}
	}
}

// typedItem reports whether an item of a list without types has one. Then a member is before the
// type, as no server writes it; a Trim may take that member away, and the type is first.
func typedItem(t testing.TB, form framing.ListForm, o *framing.Object) bool {
	var item map[string]json.RawMessage
	if err := json.Unmarshal(bytes.Join(form.AppendItem(nil, nil, o, true), nil), &item); err != nil {
		t.Fatal(err)
	}
	return item["kind"] != nil || item["apiVersion"] != nil
}

var (
	leanOnly     = dropping("metadata,managedFields")
	bareMetadata = dropping("metadata,managedFields", "metadata,finalizers", "metadata,ownerReferences",
		"metadata,annotations,deprecated.daemonset.template.generation", "metadata,annotations,none")
	ofOthers = framing.Drop{Fields: leanOnly.Fields,
		Selects: func(labels map[string]string) bool { return len(labels) == 0 }}
	manyPaths = dropping("spec,containers", "spec,template", "status", "data", "status,phase",
		"spec,replicas", "spec,template,spec", "subsets", "none,at,all", "spec,c", "roleRef", "spec,volumes,name", "endpoints,addresses", "spec,taints,key")
	someKept = []string{"metadata,annotations,none", "metadata,ownerReferences,uid", "spec,nodeName", "spec,containers,image", "spec,template,spec,containers,ports",
		"status,podIPs", "status,phase,x", "endpoints,addresses", "endpoints,conditions,ready", "data,a", "status,images,names", "none,at"}
)

// In every representation, events and lists without fields are what kube-apiserver wrote without
// them.
func TestGoldenTrim(t *testing.T) {
	for _, c := range readEverything(t) {
		t.Run(c.String(), func(t *testing.T) {
			form, objects, body := c.form(t), c.objects(t), c.bytes("list")
			var listed []*framing.Object
			if len(body) > 0 {
				listed, _ = c.readList(t, form, body)
			}
			for _, drops := range [][]framing.Drop{{leanOnly}, {bareMetadata}, {ofOthers}, {bareMetadata, manyPaths}, {manyPaths, ofOthers}, {}} {
				for _, keep := range [][]string{nil, someKept, {"metadata", "spec"}} {
					if c.encoding == framing.Protobuf && (keep != nil || slices.ContainsFunc(drops, func(d framing.Drop) bool { return len(d.Fields) == len(manyPaths.Fields) })) {
						continue
					}
					for _, o := range slices.Concat(objects, listed) {
						checkTrim(t, c, form, o, keep, drops)
					}
					checkTrimBody(t, c, form, objects[0].Bytes(), objects[:1], keep, drops)
					if len(body) > 0 {
						checkTrimBody(t, c, form, body, listed, keep, drops)
					}
				}
			}
		})
	}
}

// managedFields may be in the middle of a metadata, but only in one place.
func TestLeanProtobuf(t *testing.T) {
	name, rv, long := text(1, "x"), text(6, "7"), text(17, strings.Repeat("m", 200))
	rest := message(2, text(10, "n1"))
	bare := scanProtobuf(t, protobufEvent(t, "ADDED", message(1, name, rv), rest)).Object
	want := payload(t, bare.Frame(framing.Added))
	for _, metadata := range [][]byte{
		message(1, name, rv, long), message(1, name, long, long, rv), message(1, long, text(17, ""), name, rv),
	} {
		o := scanProtobuf(t, protobufEvent(t, "ADDED", metadata, rest)).Object
		checkFrame(t, "lean", o.TrimmedFrame(framing.Lean, framing.Added), want)
	}
	for _, metadata := range [][]byte{
		message(1, long, name, long, rv), message(1, name, rv, varint(17, 1)),
	} {
		if _, err := framing.NewScanner(framing.Protobuf, nil).Event(protobufEvent(t, "ADDED", metadata)); err == nil {
			t.Errorf("%q is read", metadata)
		}
	}
}

// Where an object has none of the fields, it keeps its frames. Where it has, each Trim has a frame
// of its own, which is made once for all goroutines.
func TestTrimShares(t *testing.T) {
	const data = `{"type":"MODIFIED","object":{"metadata":{"name":"x","resourceVersion":"7"},"data":1,"spec":{}}}` + "\n"
	o := scan(t, []byte(data)).Object
	none := framing.NewTrim(dropping("status"))
	if o.TrimmedFrame(none, framing.Modified).Start() != o.Frame(framing.Modified).Start() {
		t.Error("an object without the fields has a frame of its own")
	}
	trims := []*framing.Trim{framing.NewTrim(dropping("data")), framing.NewTrim(dropping("spec"))}
	var starts [8][2]*byte
	var wg sync.WaitGroup
	for i := range starts {
		wg.Go(func() {
			for j, trim := range trims {
				starts[i][j] = o.TrimmedFrame(trim, framing.Modified).Start()
			}
		})
	}
	wg.Wait()
	for _, s := range starts {
		if s != starts[0] || s[0] == s[1] {
			t.Errorf("got the frames %v, want %v", s, starts[0])
		}
	}
	for _, line := range append(readTestdata(t)[1].events("all"), []byte(data)) {
		ev := scan(t, line)
		for _, typ := range []framing.EventType{framing.Added, ev.Type} {
			for _, trim := range []*framing.Trim{framing.Lean, trims[0]} {
				whole, cut := ev.Object.Frame(typ), ev.Object.TrimmedFrame(trim, typ)
				if &whole.Body[len(whole.Body)-1] != &cut.Body[len(cut.Body)-1] || cap(cut.Head) != len(cut.Head) || cap(cut.Body) != len(cut.Body) {
					t.Errorf("%s as %s: the bytes behind the fields are not the whole object's", ev.Type, typ)
				}
				if n := testing.AllocsPerRun(10, func() { ev.Object.TrimmedFrame(trim, typ) }); n != 0 {
					t.Errorf("%s as %s: %v allocations, want 0", ev.Type, typ, n)
				}
			}
		}
	}
}

// The forms take no memory of an object that nobody asks for in one: the pointer to them fits into
// the size class.
func TestObjectSize(t *testing.T) {
	if n := unsafe.Sizeof(framing.Object{}); n > 256 {
		t.Errorf("an object takes %d bytes, want at most 256", n)
	}
}

// fuzzDrops reads the drops of a fuzz target: paths with dots, between commas, and annotations
// after @. Paths after + are of what is kept, in JSON and CBOR.
func fuzzDrops(text string, metadataOnly bool) (keep []string, drops []framing.Drop) {
	for field := range strings.SplitSeq(text, ",") {
		if name, ok := strings.CutPrefix(field, "@"); ok {
			drops = append(drops, framing.Drop{Fields: []framing.Path{framing.Names("metadata", "annotations", name)}})
			continue
		}
		if kept, ok := strings.CutPrefix(field, "+"); ok && !metadataOnly {
			keep = append(keep, strings.ReplaceAll(kept, ".", ","))
			continue
		}
		path := strings.Split(field, ".")
		inMetadata := slices.Contains([]string{"metadata.managedFields", "metadata.finalizers", "metadata.ownerReferences"}, field)
		if !inMetadata && (metadataOnly || slices.Contains([]string{"metadata", "kind", "apiVersion"}, path[0])) {
			continue // which a Trim must keep
		}
		drops = append(drops, framing.Drop{Fields: []framing.Path{framing.Names(path...)}})
	}
	return keep, drops[:min(len(drops), framing.MostDrops)]
}

// fuzzTrim is the body of fuzz targets.
func fuzzTrim(t *testing.T, c captured, form framing.ListForm, event []byte, keep []string, drops []framing.Drop) {
	ev, err := framing.NewScanner(c.encoding, podFields).Event(event)
	if err != nil || ev.Object == nil {
		return
	}
	checkTrim(t, c, form, ev.Object, keep, drops)
}

// seedTrim adds the captured events of representations as seeds, without length prefixes.
func seedTrim(f *testing.F, captures ...[]captured) {
	for _, c := range slices.Concat(captures...) {
		all := c.events("all")
		for _, event := range all[:min(3, len(all))] {
			event, err := framing.NewEventReader(c.encoding, bytes.NewReader(event)).Next()
			if err != nil {
				f.Fatal(err)
			}
			f.Add(bytes.Clone(event), "metadata.managedFields")
		}
	}
}

// FuzzTrimJSON compares with a rewriting of the object, member by member.
func FuzzTrimJSON(f *testing.F) {
	seedTrim(f, asJSON.captured(f), asMetadata.captured(f))
	for _, object := range []string{ // managedFields may be anywhere in the metadata, in any white space
		`{"metadata":{"name":"x", "managed\u0046ields" : [ ] ,"resourceVersion":"7"}}`,
		`{"metadata":{"managedFields":{}},"metadata":{"name":"x","resourceVersion":"7"}}`,
		`{"metadata":{"name":"x","resourceVersion":"7","managedFields":[{"a":{}}]}}`,
		`{"metadata":{"managedFields":[],"name":"x","resourceVersion":"7"},"spec":{}}`,
		`{"a":1,"metadata":{"name":"x","managedFields":[],"resourceVersion":"7"},"kind":"K"}`,
		`{"metadata":{"name":"x","resourceVersion":"7","managedFields":null}}`,
		`{"metadata":{"name":"x","resourceVersion":"7","managed\u0046ields":["]}",{}]}}`,
		"{\"metadata\": {\"name\":\"x\" ,\t\"managedFields\" : [ ] , \"resourceVersion\":\"7\"} }",
		"{\"metadata\":{\"name\":\"x\",\"resourceVersion\":\"7\"\r\t,\t\"managedFields\":[]\t}}",
		`{"metadata":{"name":"x","resourceVersion":"7"}}`,
		`{"managedFields":[],"metadata":{"name":"x","resourceVersion":"7","labels":{"managedFields":"1"},` +
			`"annotations":{"managedFields":"[]"}},"spec":{"metadata":{"managedFields":[]}}}`,
		`{"metadata":{"name":"x","resourceVersion":"7","ManagedFields":[],"managedfields":[]}}`,
	} {
		f.Add([]byte(`{"type":"MODIFIED","object":`+object+"}\n"), "metadata.managedFields")
	}
	const meta = `"metadata":{"name":"x","resourceVersion":"7"}`
	for _, object := range []string{ // members are left out with one comma
		`{"data":{"a":"}"},` + meta + `}`, `{` + meta + `,"data":{"a":"}"}}`, `{"kind":"K","data":1,` + meta + `,"data":[2],"data":null}`,
		`{"kind":"K","data":1,"data":2,` + meta + `,"z":1}`, `{` + meta + `,"d\u0061ta":1,"z":1}`, `{` + meta + `,"status":{"images":[1,{"data":2}]}}`,
		`{` + meta + `,"status":{"images":1,"a":{"b":{},"c":1}},"data":1}`, `{` + meta + `,"status":{"a":{"b":1},"images":1}}`,
		`{` + meta + `,"status":{"a":[{"b":1}],"images":1,"x":1}}`, `{` + meta + `,"status":"images","spec":{"data":1}}`,
		"{\"status\" : { \"images\" :1 ,\t\"x\":1 } ,\t " + meta + " ,\"data\" : 1 }",
		`{"metadata":{"name":"x","annotations":{"x/y":"1"},"resourceVersion":"7"}}`,
		`{"metadata":{"annotations":{"x/y":"1","z":"2"},"name":"x","resourceVersion":"7"}}`,
		`{"metadata":{"name":"x","resourceVersion":"7","annotations":{"x\/y":"1","x/y":"2"}},"a":{"annotations":{"x/y":"1"}}}`,
		`{"metadata":{"name":"x","resourceVersion":"7","annotations":{}}}`, `{"data":1,"kind":"K",` + meta + `}`,
	} {
		f.Add([]byte(`{"type":"ADDED","object":`+object+"}\n"), "data,status.images,status.a.b,@x/y")
		f.Add([]byte(`{"type":"ADDED","object":`+object+"}\n"), "+data,+status.images.data,+status.a,+metadata.annotations.z,status.a.b")
	}
	for _, event := range asJSON.captured(f)[0].events("all") {
		f.Add(event, "status,spec.a,metadata.managedFields,@a")
	}
	f.Add([]byte(`{"type":"ADDED","object":{"metadata":{"name":"x","resourceVersion":"7","annotations":{"a":"b"}},"spec":{"a":{"b":1},"c":2},"data":3}}`),
		"spec.a.b,data,@a,spec.c")
	form, _, err := framing.ParseListForm(framing.JSON,
		[]byte(`{"kind":"PodList","apiVersion":"v1","metadata":{"resourceVersion":"7"},"items":[]}`+"\n"))
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, line []byte, paths string) {
		if at := bytes.IndexByte(line, '\n'); at < 0 || at == len(line)-1 { // as a reader returns it
			keep, drops := fuzzDrops(paths, false)
			fuzzTrim(t, captured{representation: asJSON}, form, line, keep, drops)
		}
	})
}

// FuzzTrimCBOR compares with another decoder.
func FuzzTrimCBOR(f *testing.F) {
	seedTrim(f, asCBOR.captured(f), asCBORMetadata.captured(f))
	f.Add(cborEvent("ADDED", cborPod("metadata", cborMap("annotations", cborMap("a", "b"), "name", "x", "resourceVersion", "7"),
		"spec", cborMap("a", cborMap("b", 1), "c", 2), "data", 3)), "spec.a.b,data,@a,spec.c")
	for _, n := range []int{0, 20, 21, 22, 300} { // the number of a map's entries may take a byte less without managedFields
		metadata := map[string]any{"name": "x", "resourceVersion": "7", "managedFields": []any{map[string]any{"a": 1}}}
		for i := range n {
			metadata[strings.Repeat("k", i+1)] = i
		}
		f.Add(cborEvent("ADDED", cborPod("metadata", metadata, "spec", map[string]any{"nodeName": "n"})), "metadata.managedFields")
	}
	form := asCBOR.captured(f)[0].form(f)
	f.Fuzz(func(t *testing.T, event []byte, paths string) {
		if _, ok := cborTwin(event); ok {
			keep, drops := fuzzDrops(paths, false)
			fuzzTrim(t, captured{representation: asCBOR}, form, event, keep, drops)
		}
	})
}

// FuzzTrimProtobuf reads what it has trimmed, and compares with apimachinery's types if they would
// have written the event.
func FuzzTrimProtobuf(f *testing.F) {
	name, rv, managed := text(1, "x"), text(6, "7"), message(17, text(1, strings.Repeat("m", 200)))
	f.Add(protobufEvent(f, "ADDED", message(1, name, rv, message(12, text(1, "a"), text(2, "b")), managed), message(2, text(10, "n1"))),
		"metadata.managedFields,@a")
	seedTrim(f, asProtobuf.captured(f), asProtobufMetadata.captured(f))
	f.Add(protobufEvent(f, "DELETED", message(1, managed, name, managed, rv)), "metadata.managedFields")
	f.Add(protobufEvent(f, "ADDED", message(1, name, managed, managed, rv), message(2, text(10, "n1"))), "metadata.managedFields")
	unreadable := text(17, "m") // for apimachinery's types
	f.Add(protobufEvent(f, "ADDED", message(1, name, rv, message(12, text(1, "a"), text(2, "b")), unreadable)), "@a")
	form := asProtobuf.captured(f)[0].form(f)
	f.Fuzz(func(t *testing.T, event []byte, paths string) {
		c := captured{representation: asProtobuf}
		if tw, ok := protobufTwinOf(event); ok && tw.canonical {
			c.file = "canonical"
		}
		keep, drops := fuzzDrops(paths, true)
		fuzzTrim(t, c, form, event, keep, drops)
	})
}

// fieldLen returns the length of the first field of a message.
func fieldLen(t testing.TB, message []byte) int {
	t.Helper()
	_, _, n := protowire.ConsumeField(message)
	if n < 0 {
		t.Fatalf("no field: %.300q", message)
	}
	return n
}

// compact returns JSON without white space, which captured files do not have.
func compact(t testing.TB, object []byte) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := json.Compact(&b, object); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// checkTrimBody compares a whole answer, an object or a list of the objects, with what a lane makes
// of it.
func checkTrimBody(t *testing.T, c captured, form framing.ListForm, body []byte, objects []*framing.Object, keep []string, drops []framing.Drop) {
	t.Helper()
	trim := trimOf(c.encoding, keep, drops)
	parts, ok := trim.Body(c.encoding, body)
	if ok != (c.encoding != framing.CBOR) {
		t.Fatalf("%s: read %v", c.encoding, ok)
	}
	if !ok {
		return
	}
	want := bytes.Join(objects[0].AppendTrimmed(nil, trim), nil)
	if len(body) != len(objects[0].Bytes()) {
		_, meta := c.readList(t, form, body)
		want = assembleTrimmed(form, meta, objects, trim)
	}
	if got := bytes.Join(parts, nil); !bytes.Equal(got, want) {
		t.Fatalf("got %q\nwant %q", got, want)
	}
}

// What is no object and no list stays as it is.
func TestTrimBodyOfOthers(t *testing.T) {
	trim := framing.NewTrim(bareMetadata)
	for _, body := range []string{"", "x", "{}", `{"kind":"Table","rows":[]}`, `{"items":[]}`, `{"items":[{}]}`, `{"items":1}`, `[]`,
		`{"items":[{"metadata":{"name":"x","resourceVersion":"7"}}]}x`, `{"items":[{"metadata":{"name":"x","resourceVersion":"7"}}`} {
		if parts, ok := trim.Body(framing.JSON, []byte(body)); ok && string(bytes.Join(parts, nil)) != body {
			t.Errorf("%s became %q", body, parts)
		}
	}
	for _, body := range []string{"", "k8s\x00", "k8s\x00\n\x00", "{}"} {
		if parts, ok := trim.Body(framing.Protobuf, []byte(body)); ok {
			t.Errorf("%q became %q", body, parts)
		}
	}
}

// FuzzTrimBody: what has been trimmed has nothing left to trim.
func FuzzTrimBody(f *testing.F) {
	f.Add([]byte(`{"items":[{"metadata":{"name":"x","resourceVersion":"7","annotations":{"a":"b"}},"data":1}],"metadata":{}}`), false, "data,@a")
	f.Add([]byte(`{"metadata":{"name":"x","resourceVersion":"7","annotations":{"a":"b"}},"data":1}`), false, "data,@a")
	f.Add(asProtobuf.captured(f)[0].bytes("list"), true, "metadata.managedFields,@a")
	f.Fuzz(func(t *testing.T, body []byte, protobuf bool, paths string) {
		e := framing.JSON
		if protobuf {
			e = framing.Protobuf
		}
		keep, drops := fuzzDrops(paths, protobuf)
		trim := trimOf(e, keep, drops)
		parts, ok := trim.Body(e, body)
		if !ok {
			return
		}
		once := bytes.Join(parts, nil)
		parts, ok = trim.Body(e, once)
		if twice := bytes.Join(parts, nil); !ok || !bytes.Equal(twice, once) {
			t.Fatalf("%q became %q and then %q", body, once, twice)
		}
	})
}

// selecting returns a Trim that keeps data of objects with data=in, and counts how often it is asked.
func selecting(e framing.Encoding, asked *int) *framing.Trim {
	s := framing.Shape{Keep: pathsOf(append([]string{"data", "spec,a,b"}, identity...)), Where: framing.Where{
		Values:  []framing.Value{{Path: framing.Names("spec", "a")}},
		Matches: func(values [][]byte) bool { *asked++; return string(values[0]) == "in" }}}
	if e == framing.Protobuf {
		number := func(n ...protowire.Number) (p framing.Path) {
			for _, n := range n {
				p = append(p, framing.Step{Number: n})
			}
			return p
		}
		s.Keep = []framing.Path{number(1, 1), number(1, 6), number(3)}
		s.Where.Values[0] = framing.Value{Path: number(2, 1), Text: func(_ uint64, b []byte) []byte { return b }}
	}
	return s.Trim().With(nil, true)
}

// The forms of versions are counted once if they are one, as long as one of the versions is kept.
func TestFormsCount(t *testing.T) {
	var asked int
	var forms framing.Forms
	trim := selecting(framing.JSON, &asked)
	version := func(rv string) *framing.Object {
		o, err := framing.NewScanner(framing.JSON, nil).Item([]byte(`{"kind":"K","apiVersion":"v1","metadata":{"name":"x","resourceVersion":"`+rv+
			`"},"spec":{"a":"in","b":`+rv+`},"data":"`+strings.Repeat("d", 500)+`"}`), nil)
		if err != nil {
			t.Fatal(err)
		}
		o.CountForms(&forms)
		return o
	}
	a, b := version("8"), version("9")
	_ = a.In(trim, nil)
	one := forms.Bytes()
	if !b.SameIn(trim, a) {
		t.Fatal("the versions differ")
	}
	two := forms.Bytes()
	a.ForgetForms()
	left := forms.Bytes()
	b.TrimmedFrame(trim, framing.Added) // has a resourceVersion of its own
	exact := forms.Bytes()
	b.ForgetForms()
	_ = a.In(selecting(framing.JSON, &asked), nil)
	if one < 700 || two-one > 200 || left <= one-200 || left >= two || exact-left < 700 || forms.Bytes() != 0 {
		t.Errorf("counted %d, %d, %d, %d and %d bytes", one, two, left, exact, forms.Bytes())
	}
}

// An object lets go of its forms for retired Trims when it has another, however many there have been. What is made
// for a retired one counts as little.
func TestFormsRetire(t *testing.T) {
	var asked int
	var forms framing.Forms
	o, err := framing.NewScanner(framing.JSON, nil).Item([]byte(`{"kind":"K","apiVersion":"v1","metadata":{"name":"x","resourceVersion":"7"},`+
		`"spec":{"a":"in","b":1},"data":"`+strings.Repeat("d", 500)+`"}`), nil)
	if err != nil {
		t.Fatal(err)
	}
	o.CountForms(&forms)
	use := func(trim *framing.Trim) int64 {
		o.In(trim, nil)
		o.TrimmedFrame(trim, framing.Added)
		return forms.Bytes()
	}
	stays, bare := selecting(framing.JSON, &asked), framing.NewTrim(bareMetadata)
	use(stays)
	before := use(bare)
	for range 100 {
		first, other := selecting(framing.JSON, &asked), framing.NewTrim(bareMetadata)
		if one := use(first); use(other) > before+2000 || one > before+1000 {
			t.Fatalf("forms take %d and %d bytes, and took %d", one, forms.Bytes(), before)
		}
		first.Retire()
		other.Retire()
		use(other)
		use(first)
	}
	if use(selecting(framing.JSON, &asked)) > before+1000 || use(stays) < before {
		t.Errorf("forms take %d bytes, and took %d", forms.Bytes(), before)
	}
	o.ForgetForms()
	if n := forms.Bytes(); n != 0 {
		t.Errorf("forms of no object take %d bytes", n)
	}
}

// An object is judged once. What is outside of the selection is left out of answers, and what clients see of
// an object does not differ if only its resourceVersion does.
func TestSelection(t *testing.T) {
	object := func(e framing.Encoding, name, rv, a, data string) []byte {
		if e == framing.Protobuf {
			return slices.Concat(message(1, text(1, name), text(6, rv)), message(2, text(1, a), text(2, rv)), text(3, data))
		}
		return []byte(`{"kind":"K","apiVersion":"v1","metadata":{"name":"` + name + `","resourceVersion":"` + rv + `"},"spec":{"a":"` + a + `","b":` + rv + `},"data":"` + data + `"}`)
	}
	for _, e := range []framing.Encoding{framing.JSON, framing.Protobuf} {
		var asked int
		trim, none := selecting(e, &asked), (*framing.Trim)(nil)
		item := func(name, rv, a, data string) *framing.Object {
			o, err := framing.NewScanner(e, nil).Item(object(e, name, rv, a, data), message(1, text(1, "v1"), text(2, "K")))
			if err != nil {
				t.Fatal(err)
			}
			return o
		}
		in, out := item("x", "9", "in", "1"), item("x", "9", "out", "1")
		for range 3 {
			if !in.In(trim, nil) || out.In(trim, nil) || !out.In(none, nil) || !trim.Selects() || !trim.Quiet() || none.Selects() || none.Quiet() {
				t.Fatalf("%s: the selection is wrong", e)
			}
		}
		if asked != 2 {
			t.Errorf("%s: two objects have been judged %d times", e, asked)
		}
		if got := string(payload(t, out.TrimmedFrame(trim, framing.Added))); strings.Contains(got, "out") {
			t.Errorf("%s: outside of the selection: %q", e, got)
		}
		for rv, data := range map[string]string{"8": "1", "10": "1", "100000": "1", "11": "2", "7": "2"} {
			if got := item("x", rv, "in", data).SameIn(trim, in); got != (data == "1") {
				t.Errorf("%s: at %s with %s: the same %v", e, rv, data, got)
			}
		}
		list := func(names ...string) []byte {
			var items [][]byte
			for _, name := range names {
				a := strings.Repeat("in", min(1, strings.Count(name, "i")))
				if items = append(items, object(e, name, "9", a, "1")); e == framing.Protobuf {
					items[len(items)-1] = message(2, items[len(items)-1])
				}
			}
			if e == framing.Protobuf {
				raw := slices.Concat(message(1, text(2, "9")), bytes.Join(items, nil))
				return slices.Concat([]byte("k8s\x00"), message(1, text(1, "v1"), text(2, "KList")), message(2, raw), []byte("\x1a\x00\x22\x00"))
			}
			return slices.Concat([]byte(`{"metadata":{},"items":[`), bytes.Join(items, []byte(",")), []byte("]}\n"))
		}
		for _, names := range [][]string{{"i1"}, {"i1", "i2"}, {"o"}, {"o", "i1"}, {"i1", "o"}, {"o", "i1", "o", "o", "i2", "o"}} {
			kept := slices.DeleteFunc(slices.Clone(names), func(n string) bool { return n == "o" })
			got, ok := trim.Body(e, list(names...))
			want, _ := selecting(e, &asked).Body(e, list(kept...))
			if len(kept) == 0 {
				want = [][]byte{list()}
			}
			if !ok || !bytes.Equal(bytes.Join(got, nil), bytes.Join(want, nil)) {
				t.Errorf("%s: %v became %q, want %q", e, names, bytes.Join(got, nil), bytes.Join(want, nil))
			}
		}
		if parts, ok := trim.Body(e, out.Bytes()); !ok || parts != nil {
			t.Errorf("%s: an object outside became %q", e, parts)
		}
	}
	none := `{"kind":"PartialObjectMetadataList","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"9"},"items":null}` + "\n"
	if parts, ok := selecting(framing.JSON, new(int)).Body(framing.JSON, []byte(none)); !ok || string(bytes.Join(parts, nil)) != none {
		t.Errorf("a list of metadata without objects became %q, %t", parts, ok)
	}
}
