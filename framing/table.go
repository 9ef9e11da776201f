package framing

import (
	"bytes"
	"errors"
	"fmt"
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
	return Frame{Body: newChunk(event[:at], c.definitions, event[at+len("null"):])}
}

// NewTableScanner returns a Scanner of the events of a watch in Tables, in JSON. It sets
// [Event.Columns], and the objects have no column definitions. The objects' bytes are those of
// their Tables, so [Object.Left] and [Object.Deleted] must not be called. They have no
// [Object.Fields].
func NewTableScanner() Scanner { return Scanner{tableScanner{newObjectScanner(JSON, nil)}} }

// tableScanner is the [Scanner] of Tables.
type tableScanner struct{ *objectScanner }

// scannedTable is the result of one walk over a Table, or over the Status of an ERROR. Offsets are
// into the input.
type scannedTable struct {
	own     scanned // the Table's own resourceVersion
	columns span    // the value of columnDefinitions
	rows    int
	row     scanned // the object in the last row
}

// event reads a line.
func (s tableScanner) event(line []byte) (ev Event, err error) {
	var table scannedTable
	name, at, err := s.envelope(line, func() { table = s.table() })
	if err != nil {
		return ev, err
	}
	t := eventTypeOf(string(name))
	if t == Error {
		return s.errorEvent(line[at.start:at.end])
	}
	if t == 0 || !table.ofOneRow() {
		return ev, fmt.Errorf("%.20q: %w", name, ErrNoTable)
	}
	if ev, err = table.event(t, line, at); err != nil {
		err = fmt.Errorf("%s: %w", t, err)
	}
	return ev, err
}

// item is for lists of Tables, which are not read.
func (s tableScanner) item(_, _ []byte) (*Object, error) { return nil, ErrNoTable }

// table reads a Table. The rows must come last, because [Columns.Open] looks for the column
// definitions in the bytes before.
func (s tableScanner) table() (t scannedTable) {
	for _, name := range members(s.in) {
		if t.rows > 0 {
			s.in.fail(fmt.Errorf("%w: its rows do not come last", ErrNoTable))
		}
		switch string(name) {
		case "metadata":
			s.metadata(&t.own)
		case "columnDefinitions":
			v := s.in.raw()
			t.columns = span{s.in.offset() - len(v), s.in.offset()}
		case "rows":
			t.rows, t.row = s.rows()
		default:
			s.in.skip()
		}
	}
	return t
}

// rows reads the rows, and returns their number and the object in the last one.
func (s tableScanner) rows() (n int, row scanned) {
	if s.in.kind() != '[' {
		s.in.skip()
		return 0, row
	}
	for s.in.enterArray(); s.in.element(); n++ {
		for _, name := range members(s.in) {
			if string(name) == "object" && s.in.kind() == '{' {
				row = s.object()
			} else {
				s.in.skip()
			}
		}
	}
	return n, row
}

// ofOneRow reports whether the table has column definitions, or null for them, and one row with an
// object of the Table's resourceVersion.
func (t *scannedTable) ofOneRow() bool {
	return t.columns.len() > 0 && t.rows == 1 && t.row.rv != 0 && t.row.rv == t.own.rv && !t.row.initialEventsEnd
}

// event returns the event of type typ whose object t is, at a place in line.
func (t *scannedTable) event(typ EventType, line []byte, at span) (Event, error) {
	ev := Event{Type: typ, ResourceVersion: t.row.rv}
	head, tail := line[at.start:t.columns.start], line[t.columns.end:at.end]
	if !bytes.HasSuffix(head, []byte(`"columnDefinitions":`)) || bytes.Contains(head, []byte(noColumns)) {
		return ev, ErrNoTable
	}
	if columns := line[t.columns.start:t.columns.end]; string(columns) != "null" {
		ev.Columns = Columns{bytes.Clone(columns)}
	}
	if typ == Bookmark {
		moved := len("null") - t.columns.len() - at.start
		own := t.own.digits.moved(-at.start)
		if t.own.digits.start > t.columns.start {
			own = t.own.digits.moved(moved)
		}
		ev.Form = BookmarkForm{encoding: JSON, plain: bookmark{
			object: bytes.Join([][]byte{head, []byte("null"), tail}, nil),
			layout: layout{rvStart: int32(t.row.digits.start + moved), rvEnd: int32(t.row.digits.end + moved)},
			table:  own,
		}}
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
