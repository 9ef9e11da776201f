package framing_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/framing"
)

// The chunk size is right at every number of digits.
func TestFrameSizes(t *testing.T) {
	for _, n := range []int{0, 1, 14, 15, 16, 17, 200, 4000, 4096, 65_500, 65_536, 1 << 20} {
		for extra := range 80 {
			status := `{"message":"` + strings.Repeat("x", n+extra) + `"}`
			f := framing.ErrorFrame(framing.JSON, []byte(status))
			if want := `{"type":"ERROR","object":` + status + "}\n"; extra < 3 || n < 1<<16 {
				checkFrame(t, "error", f, []byte(want))
			}
			if cap(f.Body) != len(f.Body) {
				t.Errorf("%d bytes: capacity %d for %d", n+extra, cap(f.Body), len(f.Body))
			}
		}
	}
}

func TestEventTypeString(t *testing.T) {
	for typ, want := range map[framing.EventType]string{
		framing.Added: "ADDED", framing.Bookmark: "BOOKMARK", 0: "EventType(0)", 99: "EventType(99)",
	} {
		if got := typ.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// The most common frames cost nothing, and clients that get the same frame share its bytes.
func TestFrameAllocs(t *testing.T) {
	for _, line := range readTestdata(t)[1].events("all") {
		ev := scan(t, line)
		o := ev.Object
		for _, typ := range []framing.EventType{framing.Added, ev.Type} {
			if n := testing.AllocsPerRun(10, func() { o.Frame(typ) }); n != 0 {
				t.Errorf("%s as %s: %v allocations, want 0", ev.Type, typ, n)
			}
			if a, b := o.Frame(typ), o.Frame(typ); &a.Body[0] != &b.Body[0] {
				t.Errorf("%s as %s: not shared", ev.Type, typ)
			}
		}
		for _, typ := range []framing.EventType{framing.Added, framing.Modified, framing.Deleted} {
			as := o.As(typ)
			if a, b := as.Frame(typ), as.Frame(typ); &a.Body[0] != &b.Body[0] {
				t.Errorf("%s made to be %s: not shared", ev.Type, typ)
			}
		}
		if f := o.Frame(ev.Type); len(f.Head) != 0 {
			t.Errorf("%s: the live event is not contiguous", ev.Type)
		}
		if n := testing.AllocsPerRun(10, func() { o.As(ev.Type) }); n != 0 {
			t.Errorf("%s as itself: %v allocations, want 0", ev.Type, n)
		}
		if got, want := o.Size(), o.Frame(ev.Type).Len()+len(o.Frame(framing.Added).Head); got != want {
			t.Errorf("Size() = %d, want %d", got, want)
		}
	}
}

// Appending to a frame that a client was given can't change another client's frame.
func TestFrameIsClipped(t *testing.T) {
	o := scan(t, readTestdata(t)[1].events("all")[1]).Object
	want := bytes.Clone(o.Frame(framing.Modified).Body)
	for _, b := range [][]byte{o.Frame(framing.Added).Head, o.Frame(framing.Added).Body, o.Bytes()} {
		_ = append(b, "overwritten"...)
	}
	if got := o.Frame(framing.Modified).Body; !bytes.Equal(got, want) {
		t.Errorf("frame is now %s", got)
	}
}

// An object that is made of another one has all of its description.
func TestCopiesAreWhole(t *testing.T) {
	for _, c := range readEverything(t) {
		o := c.scan(t, c.events("initial")[0]).Object
		o.TrimmedFrame(framing.Lean, framing.Added)
		for name, copied := range map[string]*framing.Object{
			"As": o.As(framing.Deleted), "Deleted": o.Deleted(9), "Repeated": o.Repeated(9),
		} {
			was, is := reflect.ValueOf(o).Elem(), reflect.ValueOf(copied).Elem()
			for i := range was.NumField() {
				field := was.Type().Field(i).Name
				if field != "lean" && !was.Field(i).IsZero() && is.Field(i).IsZero() {
					t.Errorf("%s, %s: %s is missing", c, name, field)
				}
			}
		}
	}
}
