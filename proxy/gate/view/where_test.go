package view

import (
	"fmt"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
)

func TestWhere(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		all, err := parseWhere(text)
		got := fmt.Sprint(err)
		if err == nil {
			var words []string
			for _, c := range all {
				words = append(words, fmt.Sprintf("%s %s %q", c.path, c.op, c.values))
			}
			got = strings.Join(words, "; ")
		}
		if got != want {
			t.Errorf("%s:\n got %s\nwant %s", text, got, want)
		}
	}
	f("status.phase notin (Succeeded, Failed),spec.nodeName", `status.phase notin ["Succeeded" "Failed"]; spec.nodeName exists []`)
	f("! spec.nodeName , a==b,c != d", `spec.nodeName !exists []; a = ["b"]; c != ["d"]`)
	f("image=ghcr.io/a/b:1, ip in (::1,10.0.0.1),at='a, ''b'''", `image = ["ghcr.io/a/b:1"]; ip in ["::1" "10.0.0.1"]; at = ["a, 'b'"]`)
	f("metadata.annotations['a.b/c']=, x in ( )", `metadata.annotations['a.b/c'] = [""]; x in [""]`)
	f("in in (in)", `in in ["in"]`)
	f("", "column 1: found the end: give a path, for example status.phase")
	f("a=b,", "column 5: found the end: give a path, for example status.phase")
	f("a b", `column 3: found "b": give =, !=, in (…), notin (…), or a comma`)
	f("ä.b", `column 1: "ä.b" is no path: give at most 12 names with dots between them, for example status.images, and other keys as in data['tls.crt']`)
	f("a=é é", `column 5: found "é": give a comma between two conditions`)
	f("a in b", `column 6: found "b": give values in brackets, for example (Succeeded, Failed)`)
	f("a in (b", "column 8: found the end: give a comma or )")
	f("a in (b c)", `column 9: found "c": give a comma or )`)
	f("a='b", "column 3: a quote without its end: give another '")
	f("=b", `column 1: found "=": give a path, for example status.phase`)
	f("a>1", `column 1: "a>1" is no path: give at most 12 names with dots between them, for example status.images, and other keys as in data['tls.crt']`)
	f("metadata.x=1", "column 1: \"metadata.x\" is no field of metadata: give metadata with one of "+strings.Join(ofMetadata, ", "))
}

// FuzzWhere: conditions whose paths and values a label may have are those of Kubernetes' label
// selectors.
func FuzzWhere(f *testing.F) {
	for _, seed := range []string{"a notin (b, c),d", "!a,b==c", "a!=b", "a in (b,)", "a='b'", "x.y['z']=1", "a=,b", "a in ()"} {
		f.Add(seed, "b")
	}
	f.Fuzz(func(t *testing.T, text, value string) {
		all, err := parseWhere(text)
		selector, wrong := labels.Parse(text)
		if wrong != nil || strings.ContainsAny(text, "<>\x00") { // a NUL ends a label selector
			return
		}
		if err != nil {
			if !strings.Contains(err.Error(), "path") && text != "" && !strings.HasPrefix(strings.TrimSpace(text), ",") {
				t.Fatalf("%q is a label selector: %v", text, err)
			}
			return
		}
		for _, with := range []bool{false, true} {
			set, got := labels.Set{}, true
			for _, c := range all {
				if c.path == all[0].path && with {
					set[c.path] = value
					got = got && c.matches([]byte(value))
				} else {
					got = got && c.matches(nil)
				}
			}
			if want := selector.Matches(set); got != want {
				t.Fatalf("%q selects %v: %v, want %v", text, set, got, want)
			}
		}
	})
}
