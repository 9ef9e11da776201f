package framing_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/framing"
)

// asTable is kept apart from the other representations: a Table is not what a list shows.
var asTable = representation{dir: "table", encoding: framing.JSON}

func scanTable(t testing.TB, line []byte) framing.Event {
	t.Helper()
	ev, err := framing.NewTableScanner().Event(line)
	if err != nil {
		t.Fatalf("%v\nin %.300s", err, line)
	}
	return ev
}

// Every event goes to clients in the bytes in which it came, except for the column definitions. The
// first event that a client is sent has them, wherever the client begins.
func TestGoldenTables(t *testing.T) {
	files := asTable.captured(t)
	if len(files) == 0 {
		t.Fatal("no Tables in testdata")
	}
	for _, c := range files {
		t.Run(c.file, func(t *testing.T) {
			columns := scanTable(t, c.events("all")[0]).Columns
			if !columns.Known() {
				t.Fatal("the first event has no column definitions")
			}
			for i, line := range c.events("all") {
				ev := scanTable(t, line)
				if ev.Columns.Known() != (i == 0) {
					t.Errorf("event %d: column definitions %v", i, ev.Columns.Known())
				}
				if o := ev.Object; o.Name != "a" || o.Labels["set"] != "golden" || o.ResourceVersion != ev.ResourceVersion {
					t.Errorf("event %d: object %s, labels %v, resourceVersion %d of %d", i, o.Key, o.Labels, o.ResourceVersion, ev.ResourceVersion)
				}
				first, later := withColumns(t, line, c.events("all")[0]), withoutColumns(t, line)
				checkFrame(t, "later", ev.Object.Frame(ev.Type), later)
				checkFrame(t, "first", columns.Open(ev.Object.Frame(ev.Type)), first)
				for _, as := range []framing.EventType{framing.Added, framing.Modified, framing.Deleted} {
					checkFrame(t, as.String(), ev.Object.Frame(as), c.retyped(t, later, ev.Type, as))
				}
			}
			for _, line := range c.events("bookmark") {
				ev := scanTable(t, line)
				if ev.Type != framing.Bookmark || ev.Form.HasEnd() {
					t.Fatalf("read %+v from %s", ev, line)
				}
				for _, rv := range []uint64{ev.ResourceVersion, 7, 1<<64 - 1} {
					want := bytes.ReplaceAll(withoutColumns(t, line),
						fmt.Appendf(nil, `"resourceVersion":"%d"`, ev.ResourceVersion), fmt.Appendf(nil, `"resourceVersion":"%d"`, rv))
					checkFrame(t, "bookmark", ev.Form.Frame(rv, false), want)
				}
			}
		})
	}
}

// withoutColumns returns an event with null in place of the column definitions.
func withoutColumns(t testing.TB, line []byte) []byte {
	t.Helper()
	head, rest, ok := bytes.Cut(line, []byte(`"columnDefinitions":`))
	at := bytes.LastIndex(rest, []byte(`,"rows":[{"cells":`))
	if !ok || at < 0 {
		t.Fatalf("no Table: %s", line)
	}
	return bytes.Join([][]byte{head, []byte(`"columnDefinitions":null`), rest[at:]}, nil)
}

// withColumns returns an event with the column definitions of another.
func withColumns(t testing.TB, line, from []byte) []byte {
	t.Helper()
	var ev struct {
		Object struct{ ColumnDefinitions json.RawMessage }
	}
	if err := json.Unmarshal(from, &ev); err != nil {
		t.Fatal(err)
	}
	return bytes.Replace(withoutColumns(t, line), []byte(`"columnDefinitions":null`),
		append([]byte(`"columnDefinitions":`), ev.Object.ColumnDefinitions...), 1)
}

func TestTableRefused(t *testing.T) {
	const (
		row = `{"cells":["x"],"object":{"metadata":{"name":"x","resourceVersion":"7"}}}`
		own = `"metadata":{"resourceVersion":"7"}`
	)
	f := func(typ, object string, table bool) {
		t.Helper()
		ev, err := framing.NewTableScanner().Event(fmt.Appendf(nil, `{"type":%q,"object":{%s}}`, typ, object))
		if table != (err == nil) {
			t.Errorf("%s %s: %v, %v", typ, object, ev, err)
		}
	}
	f("ADDED", own+`,"columnDefinitions":null,"rows":[`+row+`]`, true)
	f("ADDED", `"columnDefinitions":[],`+own+`,"rows":[`+row+`]`, true)
	f("UNKNOWN", own+`,"columnDefinitions":null,"rows":[`+row+`]`, false)
	f("ADDED", own+`,"rows":[`+row+`]`, false)
	f("ADDED", own+`,"columnDefinitions":null`, false)
	f("ADDED", own+`,"columnDefinitions":null,"rows":null`, false)
	f("ADDED", own+`,"columnDefinitions":null,"rows":[]`, false)
	f("ADDED", own+`,"columnDefinitions":null,"rows":[`+row+`,`+row+`]`, false)
	f("ADDED", own+`,"columnDefinitions":null,"rows":[{"cells":["x"],"object":null}]`, false)
	f("ADDED", own+`,"rows":[`+row+`],"columnDefinitions":null`, false)
	f("ADDED", `"metadata":{"resourceVersion":"8"},"columnDefinitions":null,"rows":[`+row+`]`, false)
	f("ADDED", `"columnDefinitions":null,"rows":[`+row+`]`, false)
	f("ADDED", `"kind":"Pod","metadata":{"name":"x","resourceVersion":"7"}`, false)
	f("BOOKMARK", own+`,"columnDefinitions":null,"rows":[{"cells":[""],"object":{"metadata":{"resourceVersion":"7"}}}]`, true)
	f("BOOKMARK", own+`,"columnDefinitions":null,"rows":[{"cells":[""],"object":{"metadata":{"resourceVersion":"7","annotations":{"k8s.io/initial-events-end":"true"}}}}]`, false)
	f("ERROR", `"kind":"Status","code":410`, true)

	_, err := framing.NewTableScanner().Event([]byte(`{"type":"ADDED","object":{"kind":"Pod"}}`))
	if !errors.Is(err, framing.ErrNoTable) {
		t.Errorf("an event that is no Table: %v, want %v", err, framing.ErrNoTable)
	}
	ev := scanTable(t, []byte(`{"type":"ERROR","object":{"kind":"Status","code":410,"reason":"Expired"}}`+"\n"))
	if ev.Status.Code != 410 {
		t.Errorf("code %d, want 410", ev.Status.Code)
	}
	if _, err := framing.NewTableScanner().Item([]byte(`{}`), nil); err == nil {
		t.Error("an item of a list was read")
	}
}

// A bookmark has its resourceVersion in two places, wherever the column definitions are.
func TestTableBookmark(t *testing.T) {
	const (
		columns = `"columnDefinitions":[{"name":"Name","type":"string"}]`
		own     = `"metadata":{"resourceVersion":"7"}`
		rows    = `"rows":[{"cells":[""],"object":{"metadata":{"resourceVersion":"7"}}}]`
	)
	for _, members := range [][]string{{own, columns, rows}, {columns, own, rows}} {
		line := []byte(`{"type":"BOOKMARK","object":{` + strings.Join(members, ",") + "}}\n")
		ev := scanTable(t, line)
		for _, rv := range []uint64{8, 12345} {
			want := strings.NewReplacer(`"7"`, fmt.Sprintf(`"%d"`, rv), columns, `"columnDefinitions":null`).Replace(string(line))
			checkFrame(t, members[0], ev.Form.Frame(rv, false), []byte(want))
		}
	}
}

// An event that has no column definitions to put in, such as an ERROR, stays as it is.
func TestColumnsOpen(t *testing.T) {
	event := scanTable(t, asTable.captured(t)[0].events("all")[0])
	frame := event.Object.Frame(event.Type)
	if got := (framing.Columns{}).Open(frame); &got.Body[0] != &frame.Body[0] {
		t.Error("unknown columns changed a frame")
	}
	failed := framing.ErrorFrame(framing.JSON, []byte(`{"code":410}`))
	if got := event.Columns.Open(failed); &got.Body[0] != &failed.Body[0] {
		t.Error("columns changed an ERROR")
	}
	if !event.Columns.Equal(event.Columns) || event.Columns.Equal(framing.Columns{}) {
		t.Error("columns are not compared by their definitions")
	}
}

// FuzzTable: an accepted event is unchanged except for its column definitions, and the first event
// of a watch is the event that came.
func FuzzTable(f *testing.F) {
	for _, c := range asTable.captured(f) {
		for _, section := range []string{"all", "bookmark"} {
			for _, line := range c.events(section) {
				f.Add(line, uint64(9))
			}
		}
	}
	f.Add([]byte(`{"type":"ERROR","object":{"kind":"Status","code":410}}`), uint64(1))
	s := framing.NewTableScanner()
	f.Fuzz(func(t *testing.T, line []byte, rv uint64) {
		ev, err := s.Event(line)
		if err != nil || ev.Type == framing.Error {
			return
		}
		rv = max(rv, 1)
		if ev.Type == framing.Bookmark {
			made := payload(t, ev.Columns.Open(ev.Form.Frame(rv, false)))
			if got, err := s.Event(made); ordinary(line) && (err != nil || got.ResourceVersion != rv || got.Columns.Known() != ev.Columns.Known()) {
				t.Fatalf("made %s\nfrom %s: %v", made, line, err)
			}
			return
		}
		made := payload(t, ev.Columns.Open(ev.Object.Frame(ev.Type)))
		object, ok := strings.CutPrefix(string(made), fmt.Sprintf(`{"type":%q,"object":`, ev.Type))
		object, end := strings.CutSuffix(object, "}\n")
		if !ok || !end || !bytes.Contains(line, []byte(object)) {
			t.Fatalf("made %s\nfrom %s", made, line)
		}
	})
}
