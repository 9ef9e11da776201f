package fanout_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
)

// Compiled requirements select what apimachinery's selectors do.
func FuzzRequirements(f *testing.F) {
	for _, s := range []string{"", "a", "!a", "a=1,b!=2", "a in (1,2,3),b notin (1,,2)", "a>1,a<-5",
		"a>9223372036854775807", "a=,b!=", "a in (a),a in (b)"} {
		f.Add(s, "a=1 b=2")
		f.Add(s, "a= b=x c=3")
		f.Add(s, "")
	}
	many := make([]string, 30) // even numbers, in no order
	for i := range many {
		many[i] = fmt.Sprint(i * 14 % 60)
	}
	for v := range 60 {
		for _, form := range []string{"a in (%s)", "a notin (%s)", "a in (%s),a>9,a<50", "!b,a notin (%s),c"} {
			f.Add(fmt.Sprintf(form, strings.Join(many[:1+v%30], ",")), fmt.Sprintf("a=%d c=1", v))
		}
	}
	for _, v := range []string{"", "x", "-7", "+3", "99999999999999999999"} {
		f.Add("a>1", "a="+v)
		f.Add("a<2", "a="+v)
		f.Add("a in ("+strings.Join(many, ",")+")", "a="+v)
	}
	f.Fuzz(func(t *testing.T, ls, object string) {
		parsed, err := labels.Parse(ls)
		if err != nil {
			return
		}
		o := &framing.Object{Name: "x", Labels: make(map[string]string)}
		for _, l := range strings.Fields(object) {
			k, v, _ := strings.Cut(l, "=")
			o.Labels[k] = v
		}
		filter, ok := fanout.NewFilter("", parsed, nil, nil)
		if want := parsed.Matches(labels.Set(o.Labels)); !ok || filter.Match(o) != want {
			t.Errorf("%q selects %v: %v, want %v", parsed, o.Labels, !want, want)
		}
	})
}

// A filter takes little more memory than its selector, and is quick to evaluate however many values
// it lists.
func TestFilterSize(t *testing.T) {
	values := make([]string, 500)
	for i := range values {
		values[i] = fmt.Sprintf("value-%05d", i)
	}
	slices.Reverse(values)
	ls := "key notin (" + strings.Join(values, ",") + ")"
	parsed, err := labels.Parse(ls)
	if err != nil {
		t.Fatal(err)
	}
	const filters = 200
	kept := make([]*fanout.Filter, filters)
	before := heap()
	for i := range kept {
		request := strings.Repeat("namespace", 10_000)
		kept[i], _ = fanout.NewFilter(request[:9], parsed, nil, nil)
	}
	held := int(heap()-before) / filters
	if size := kept[0].Size(); held > 3*len(ls) || size < held*2/3 || size > held*3/2 {
		t.Errorf("a filter of a selector of %d bytes holds %d, and says %d", len(ls), held, size)
	}
	if cost := kept[0].Cost(); cost > 8 {
		t.Errorf("500 values cost %d", cost)
	}
}
