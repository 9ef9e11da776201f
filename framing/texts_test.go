package framing_test

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/framing"
)

// Neighbours with the same labels share them. No object's labels change with those of another.
func TestSharedLabels(t *testing.T) {
	s := framing.NewScanner(framing.JSON, nil)
	var many strings.Builder
	for i := range 100 {
		fmt.Fprintf(&many, `"k%d":"v%d",`, i, i)
	}
	labels := []string{
		`{"app":"web","tier":"a"}`, `{"app":"web","tier":"a"}`, `{"tier":"a","app":"web"}`, `{"app":"web"}`, `{}`, `null`,
		`{"app":"web","app":"db"}`, `{"app":"web","tier":"a","x":""}`, `{"app":null}`, `{"a\u0070p":"w\"b"}`,
		"{" + strings.TrimSuffix(many.String(), ",") + "}", `{"app":"` + strings.Repeat("x", 100) + `"}`, `{"app":"web"}`,
	}
	var got, want []map[string]string
	for i, l := range labels {
		ev, err := s.Event(fmt.Appendf(nil, `{"type":"ADDED","object":{"kind":"Pod","apiVersion":"v1",`+
			`"metadata":{"name":"p%d","namespace":"n","resourceVersion":"%d","labels":%s}}}`, i, i+1, l))
		if err != nil {
			t.Fatal(err)
		}
		got, want = append(got, ev.Object.Labels), append(want, maps.Clone(ev.Object.Labels))
	}
	for i, w := range []map[string]string{0: {"app": "web", "tier": "a"}, 3: {"app": "web"}, 6: {"app": "db"},
		8: {"app": ""}, 9: {"app": `w"b`}, 12: {"app": "web"}} {
		if w != nil && !maps.Equal(got[i], w) {
			t.Errorf("%s: got %v", labels[i], got[i])
		}
	}
	for i := range got {
		if !maps.Equal(got[i], want[i]) {
			t.Errorf("%s: became %v after the objects that followed", labels[i], got[i])
		}
	}
	same := func(i, k int) bool {
		return reflect.ValueOf(got[i]).Pointer() == reflect.ValueOf(got[k]).Pointer()
	}
	if !same(0, 1) || !same(1, 2) || same(2, 3) || len(got[10]) != 100 || got[4] != nil || got[5] != nil {
		t.Error("labels are not shared, or shared with other ones")
	}
}
