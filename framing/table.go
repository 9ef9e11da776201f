package framing

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"
)

// ErrNoTable is returned for an event that is not a Table of one row with the object's metadata.
// kube-apiserver sends such an event if it can't convert an object to a Table.
var ErrNoTable = errors.New("event is no Table of one row")

// Columns are the column definitions of a resource's Tables, as JSON. kube-apiserver sends them
// with the first event of a watch, and null with all others
// (k8s.io/apiserver/pkg/endpoints/handlers/response.go, watchEmbeddedEncoder). The zero Columns are
// not known. Columns are immutable.
type Columns struct{ definitions []byte }

// Known reports whether there are column definitions.
func (c Columns) Known() bool { return c.definitions != nil }

// Equal reports whether both have the same definitions.
func (c Columns) Equal(other Columns) bool { return bytes.Equal(c.definitions, other.definitions) }

// noColumns is a Table's member without definitions, as kube-apiserver writes it.
const noColumns = `"columnDefinitions":null`

// Open returns the event f of a Table as the first event of a watch: with the column definitions.
// It copies f. Any other event, and any event while the columns are not known, is returned
// unchanged.
func (c Columns) Open(f Frame) Frame {
	event := f.Payload(nil)
	at := bytes.Index(event, []byte(noColumns)) // nothing before it can contain it: see tableScanner.table
	if at < 0 || !c.Known() {
		return f
	}
	at += len(noColumns) - len("null")
	n := len(event) - len("null") + len(c.definitions)
	chunk := strconv.AppendInt(make([]byte, 0, n+16), int64(n), 16)
	chunk = append(append(chunk, crlf...), event[:at]...)
	chunk = append(append(chunk, c.definitions...), event[at+len("null"):]...)
	return Frame{Body: append(chunk, crlf...)}
}

// NewTableScanner returns a Scanner of the events of a watch in Tables, in JSON. It sets
// [Event.Columns], and the objects have no column definitions. The objects' bytes are those of
// their Tables, so [Object.Left] and [Object.Deleted] must not be called. They have no
// [Object.Fields].
func NewTableScanner() Scanner { return scanner{&tableScanner{newJSONScanner(nil)}} }

// tableScanner is the [Scanner] of Tables. In a watch, a Table has one row:
//
//	{"type":"MODIFIED","object":{"kind":"Table","apiVersion":"meta.k8s.io/v1","metadata":{"resourceVersion":"7"},
//	 "columnDefinitions":null,"rows":[{"cells":["x",1,"5s"],"object":{"kind":"PartialObjectMetadata",…}}]}}⏎
type tableScanner struct{ *jsonScanner }

// scannedTable is the result of one walk over a Table, or over the Status of an ERROR. Offsets are
// into the input.
type scannedTable struct {
	at      span    // the whole object
	own     scanned // the Table's own resourceVersion
	columns span    // the value of columnDefinitions
	rows    int
	row     scanned // the object in the last row
}

// event reads a line.
func (s *tableScanner) event(line []byte) (ev Event, err error) {
	var table scannedTable
	name, err := s.envelope(line, func() (span, error) {
		var err error
		table, err = s.table()
		return table.at, err
	})
	if err != nil {
		return ev, err
	}
	t := eventTypeOf(name)
	if t == Error {
		return errorEvent(line[table.at.start:table.at.end])
	}
	if t == 0 || !table.ofOneRow() {
		return ev, fmt.Errorf("%.20q: %w", name, ErrNoTable)
	}
	if ev, err = table.event(t, line); err != nil {
		err = fmt.Errorf("%s: %w", t, err)
	}
	return ev, err
}

// item is for lists of Tables, which are not read.
func (s *tableScanner) item(_, _ []byte) (*Object, error) { return nil, ErrNoTable }

// table reads a Table. The rows must come last, because [Columns.Open] looks for the column
// definitions in the bytes before.
func (s *tableScanner) table() (t scannedTable, err error) {
	t.at, err = s.members(func(name []byte) (err error) {
		if t.rows > 0 {
			return fmt.Errorf("%w: its rows do not come last", ErrNoTable)
		}
		switch string(name) {
		case `"metadata"`:
			return s.metadata(&t.own)
		case `"columnDefinitions"`:
			v, err := s.dec.ReadValue()
			t.columns = span{s.offset() - len(v), s.offset()}
			return err
		case `"rows"`:
			t.rows, t.row, err = s.rows()
			return err
		}
		return s.dec.SkipValue()
	})
	return t, err
}

// rows reads the rows, and returns their number and the object in the last one.
func (s *tableScanner) rows() (n int, row scanned, err error) {
	if s.dec.PeekKind() != '[' {
		return 0, row, s.dec.SkipValue()
	}
	err = s.elements(func() error {
		n++
		_, err := s.members(func(name []byte) (err error) {
			if string(name) != `"object"` || s.dec.PeekKind() != '{' {
				return s.dec.SkipValue()
			}
			row, err = s.object()
			return err
		})
		return err
	})
	return n, row, err
}

// ofOneRow reports whether the table has column definitions, or null for them, and one row with an
// object of the Table's resourceVersion.
func (t *scannedTable) ofOneRow() bool {
	return t.columns.len() > 0 && t.rows == 1 && t.row.rv != 0 && t.row.rv == t.own.rv && !t.row.initialEventsEnd
}

// event returns the event of type typ whose object t is, in line.
func (t *scannedTable) event(typ EventType, line []byte) (Event, error) {
	ev := Event{Type: typ, ResourceVersion: t.row.rv}
	head, tail := line[t.at.start:t.columns.start], line[t.columns.end:t.at.end]
	if !bytes.HasSuffix(head, []byte(`"columnDefinitions":`)) || bytes.Contains(head, []byte(noColumns)) {
		return ev, ErrNoTable
	}
	if columns := line[t.columns.start:t.columns.end]; string(columns) != "null" {
		ev.Columns = Columns{bytes.Clone(columns)}
	}
	if typ == Bookmark {
		ev.Form = newTableBookmarkForm(t, bytes.Join([][]byte{head, []byte("null"), tail}, nil))
		return ev, nil
	}
	o, err := t.row.identify(JSON, &fieldValues{})
	if err != nil {
		return ev, err
	}
	o.layout = layout{}
	o.frame(typ, head, []byte("null"), tail)
	ev.Object = o
	return ev, nil
}

// newTableBookmarkForm takes the form from the Table of a bookmark, which was read as t, and in
// which null has replaced the column definitions.
func newTableBookmarkForm(t *scannedTable, object []byte) BookmarkForm {
	moved := len("null") - t.columns.len() - t.at.start
	return BookmarkForm{encoding: JSON, plain: bookmark{
		object: object,
		layout: layout{rvStart: int32(t.row.rvStart + moved), rvEnd: int32(t.row.rvEnd + moved)},
		table:  span{t.own.rvStart - t.at.start, t.own.rvEnd - t.at.start},
	}}
}
