package framing_test

import (
	"encoding/json"
	"fmt"
	"reflect"
	"testing"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/watchfan/watchfan/framing"
)

// FuzzBookmarkForm: the bookmarks that are made of one differ from it in their resourceVersion, and in
// the annotation, which is cut out wherever it is, with the comma that would be left over.
func FuzzBookmarkForm(f *testing.F) {
	for _, c := range readTestdata(f) {
		for _, section := range []string{"initial", "bookmark"} {
			for _, line := range c.events(section) {
				f.Add(line, uint64(1))
			}
		}
	}
	const end = `"k8s.io/initial-events-end":"true"`
	for _, metadata := range []string{
		`"resourceVersion":"7","annotations":{` + end + `}`, `"annotations":{` + end + `},"resourceVersion":"7"`,
		`"resourceVersion":"7","annotations":{"a":"0",` + end + `}`, `"resourceVersion":"7","annotations":{` + end + `,"z":"0"}`,
		`"annotations":{` + end + `,"z":"0"},"resourceVersion":"7"`, `"resourceVersion":"7","creationTimestamp":null,"annotations":{` + end + `}`,
		`"a":1,"annotations":{` + end + `},"resourceVersion":"7","z":1`,
	} {
		f.Add([]byte(`{"type":"BOOKMARK","object":{"kind":"K","metadata":{`+metadata+`},"spec":{}}}`+"\n"), uint64(9))
	}
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
			made := payload(t, frame)
			if got, err := s.Event(made); err != nil || got.Type != framing.Bookmark || got.ResourceVersion != rv || got.InitialEventsEnd != end {
				t.Fatalf("made %+v, %v, want resourceVersion %d, end %v", got, err, rv, end)
			}
			if got, want := decodeBookmark(t, made, rv, end), decodeBookmark(t, line, rv, end); !reflect.DeepEqual(got, want) {
				t.Fatalf("made %s\nof %s", made, line)
			}
		}
	})
}

// decodeBookmark returns a bookmark as of rv, without the annotation if end is false.
func decodeBookmark(t *testing.T, line []byte, rv uint64, end bool) (event map[string]any) {
	if err := json.Unmarshal(line, &event); err != nil {
		t.Fatal(err)
	}
	metadata := event["object"].(map[string]any)["metadata"].(map[string]any)
	metadata["resourceVersion"] = fmt.Sprint(rv)
	annotations, _ := metadata["annotations"].(map[string]any)
	if _, marked := annotations[framing.InitialEventsEnd]; marked && !end {
		if delete(annotations, framing.InitialEventsEnd); len(annotations) == 0 {
			delete(metadata, "annotations")
		}
	}
	return event
}
