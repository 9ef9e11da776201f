package fanout_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// Compiled requirements select what apimachinery's selectors do.
func FuzzRequirements(f *testing.F) {
	for _, s := range []string{"", "a", "!a", "a=1,b!=2", "a in (1,2,3),b notin (1,,2)", "a>1,a<-5",
		"a>9223372036854775807", "a=,b!=", "a in (a),a in (b)"} {
		f.Add(s, "a=1 b=2")
		f.Add(s, "a= b=x c=3")
		f.Add(s, "")
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
		same(t, parsed, o)
	})
}

func same(t *testing.T, parsed labels.Selector, o *framing.Object) (selected bool) {
	t.Helper()
	filter, ok := fanout.NewFilter("", parsed, nil, nil)
	want := parsed.Matches(labels.Set(o.Labels))
	if !ok || filter.Match(o) != want {
		t.Errorf("%q selects %v: %v, want %v", parsed, o.Labels, !want, want)
	}
	return want
}

func TestRequirementsProperty(t *testing.T) {
	rng := steady.Rand(t)
	values := func() string {
		vs := make([]string, 1+rng.IntN(40))
		for i := range vs {
			vs[i] = fmt.Sprint(rng.IntN(60))
		}
		return strings.Join(vs, ",")
	}
	selected := 0
	for range 5000 {
		var terms []string
		for range 1 + rng.IntN(3) {
			key := string(rune('a' + rng.IntN(3)))
			n := fmt.Sprint(rng.IntN(60))
			terms = append(terms,
				[]string{key, "!" + key, key + " in (" + values() + ")", key + " notin (" + values() + ")",
					key + "=" + values()[:1], key + "!=", key + ">" + n, key + "<" + n}[rng.IntN(8)])
		}
		parsed, err := labels.Parse(strings.Join(terms, ","))
		if err != nil {
			t.Fatal(err)
		}
		for range 10 {
			o := &framing.Object{Name: "x", Labels: make(map[string]string)}
			for _, key := range []string{"a", "b", "c"} {
				switch rng.IntN(4) {
				case 0:
					o.Labels[key] = []string{"", "x", "-7", "+3", "99999999999999999999"}[rng.IntN(5)]
				case 1, 2:
					o.Labels[key] = fmt.Sprint(rng.IntN(60))
				}
			}
			if same(t, parsed, o) {
				selected++
			}
		}
	}
	if selected == 0 {
		t.Error("nothing is ever selected")
	}
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
