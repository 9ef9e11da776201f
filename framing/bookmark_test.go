package framing_test

import (
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/watchfan/watchfan/framing"
)

// The annotation is cut out wherever it is, with the comma that would be left over.
func TestBookmarkForm(t *testing.T) {
	const end = `"k8s.io/initial-events-end":"true"`
	f := func(metadata, plain string) {
		t.Helper()
		line := `{"type":"BOOKMARK","object":{"kind":"K","metadata":{` + metadata + `},"spec":{}}}` + "\n"
		form := scan(t, []byte(line)).Form
		checkFrame(t, "end", form.Frame(7, true), []byte(line))
		checkFrame(t, "plain", form.Frame(7, false),
			[]byte(`{"type":"BOOKMARK","object":{"kind":"K","metadata":{`+plain+`},"spec":{}}}`+"\n"))
	}
	f(`"resourceVersion":"7","annotations":{`+end+`}`, `"resourceVersion":"7"`)
	f(`"annotations":{`+end+`},"resourceVersion":"7"`, `"resourceVersion":"7"`)
	f(`"resourceVersion":"7","annotations":{"a":"0",`+end+`}`, `"resourceVersion":"7","annotations":{"a":"0"}`)
	f(`"resourceVersion":"7","annotations":{`+end+`,"z":"0"}`, `"resourceVersion":"7","annotations":{"z":"0"}`)
	f(`"annotations":{`+end+`,"z":"0"},"resourceVersion":"7"`, `"annotations":{"z":"0"},"resourceVersion":"7"`)
	f(`"resourceVersion":"7","creationTimestamp":null,"annotations":{`+end+`}`,
		`"resourceVersion":"7","creationTimestamp":null`)
	f(`"a":1,"annotations":{`+end+`},"resourceVersion":"7","z":1`, `"a":1,"resourceVersion":"7","z":1`)

	var unknown framing.BookmarkForm
	if unknown.HasEnd() || unknown.HasPlain() {
		t.Error("the zero form has forms")
	}
}

// FuzzBookmarkForm: a parser reads the bookmarks as what they were made for.
func FuzzBookmarkForm(f *testing.F) {
	for _, c := range readTestdata(f) {
		for _, section := range []string{"initial", "bookmark"} {
			for _, line := range c.events(section) {
				f.Add(line, uint64(1))
			}
		}
	}
	f.Add([]byte(`{"type":"BOOKMARK","object":{"metadata":{"annotations":{"k8s.io/initial-events-end":"true"},`+
		`"resourceVersion":"7"}}}`), uint64(9))
	s := framing.NewScanner(framing.JSON, nil)
	f.Fuzz(func(t *testing.T, line []byte, rv uint64) {
		ev, err := s.Event(line)
		if err != nil || ev.Type != framing.Bookmark {
			return
		}
		rv = max(rv, 1)
		compact := jsontext.Value(line).Clone()
		_ = compact.Compact()
		// No encoder writes spaces; with them, only a panic is an error.
		checked := ordinary(line) && len(compact)+1 >= len(line)
		for _, end := range []bool{false, true} {
			if end && !ev.Form.HasEnd() {
				continue
			}
			frame := ev.Form.Frame(rv, end)
			if !checked {
				continue
			}
			got, err := s.Event(payload(t, frame))
			if err != nil {
				t.Fatalf("%v\nin %s\nfrom %s", err, payload(t, frame), line)
			}
			if got.Type != framing.Bookmark || got.ResourceVersion != rv || got.InitialEventsEnd != end {
				t.Fatalf("made %+v, want resourceVersion %d, end %v", got, rv, end)
			}
		}
	})
}
