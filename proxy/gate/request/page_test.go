package request

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
)

// encodePage returns a continue token with any content.
func encodePage(version string, rv int64, start string) string {
	token, err := json.Marshal(pageToken{version, rv, start})
	if err != nil {
		panic(err)
	}
	return base64.RawURLEncoding.EncodeToString(token)
}

func TestParsePage(t *testing.T) {
	f := func(token string, want Page, ok bool) {
		t.Helper()
		if got, is := parsePage(token); got != want || is != ok {
			t.Errorf("%q: got %+v, %v, want %+v, %v", token, got, is, want, ok)
		}
	}
	const v = "meta.k8s.io/v1"
	f(Page{7, "ns/a"}.String(), Page{7, "ns/a"}, true)
	f(encodePage(v, 7, "a\x00"), Page{7, "a"}, true) // as other versions of kube-apiserver write it
	f(encodePage(v, 7, "/ns/a\x00"), Page{7, "ns/a"}, true)

	f("", Page{}, false)
	f("abc", Page{}, false)
	f("!!", Page{}, false)
	f(Page{7, "ns/a"}.String()+"=", Page{}, false)
	f(encodePage("v2", 7, "/a\x00"), Page{}, false)
	f(encodePage(v, 0, "/a\x00"), Page{}, false)
	f(encodePage(v, -1, "/a\x00"), Page{}, false)
	f(encodePage(v, 7, ""), Page{}, false)
	f(encodePage(v, 7, "/"), Page{}, false)
	f(encodePage(v, 7, "/\x00"), Page{}, false)
	f(encodePage(v, 7, "/a"), Page{}, false) // would begin with a, not behind it
	f(encodePage(v, 7, "/../a\x00"), Page{}, false)
	f(encodePage(v, 7, "//a\x00"), Page{}, false)
	f(encodePage(v, 7, "/a/\x00/b\x00"), Page{}, false)
	f(encodePage(v, 7, "/"+strings.Repeat("a", 8<<10)+"\x00"), Page{}, false)
}

// A page that was parsed is written as a token that is parsed as the same page.
func FuzzParsePage(f *testing.F) {
	for _, seed := range []string{"", "abc", Page{7, "ns/a"}.String(), encodePage("meta.k8s.io/v1", 1<<62, "a.b-c\x00"),
		encodePage("meta.k8s.io/v1", -1, "x\x00")} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, token string) {
		p, ok := parsePage(token)
		if !ok {
			return
		}
		if p.ResourceVersion == 0 || p.After == "" || strings.Contains(p.After, "\x00") {
			t.Errorf("%q: got %+v", token, p)
		}
		if again, ok := parsePage(p.String()); !ok || again != p {
			t.Errorf("%q: %+v is read back as %+v, %v", token, p, again, ok)
		}
	})
}
