package request

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/sharding"
	"k8s.io/apimachinery/pkg/types"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/framing"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
)

const (
	lowerHalf = "shardRange(object.metadata.uid, '0x0000000000000000', '0x8000000000000000')"
	upperHalf = "shardRange(object.metadata.uid, '0x8000000000000000', '0x10000000000000000')"
)

// What kube-apiserver takes, and how it repeats it.
func TestShardSelector(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		s := parseShardSelector(text)
		if s.Err != nil || s.Text != want {
			t.Errorf("%s: got %s, %v, want %s", text, s.Text, s.Err, want)
		}
		if again := parseShardSelector(s.Text); !reflect.DeepEqual(again, s) {
			t.Errorf("%s: got %+v, then %+v", text, s, again)
		}
	}
	f(lowerHalf, lowerHalf)
	f("\n shardRange ( object . metadata\t.uid ,\"0x0000000000000000\",'0x8000000000000000')  ", lowerHalf)
	f(upperHalf+"||"+lowerHalf, upperHalf+" || "+lowerHalf)
	f(lowerHalf+" || "+lowerHalf, lowerHalf+" || "+lowerHalf)
	namespaces := "shardRange(object.metadata.namespace, '0x00000000000000aa', '0x00000000000000ff')"
	f(namespaces, namespaces)
	f(strings.Repeat(lowerHalf+"||", MaxRequirements-1)+lowerHalf,
		strings.Repeat(lowerHalf+" || ", MaxRequirements-1)+lowerHalf)
}

// The words are those of kube-apiserver (k8s.io/apiserver/pkg/sharding/parser.go). TestShardErrors
// in package e2e compares them with those of a real one.
func TestShardSelectorErrors(t *testing.T) {
	f := func(text, want string) {
		t.Helper()
		s := parseShardSelector(text)
		if s.Err == nil || s.Err.Error() != want || s.Text != "" {
			t.Errorf("%s: got %+v, want the error %s", text, s, want)
		}
	}
	call := func(field, start, end string) string {
		return fmt.Sprintf("shardRange(%s, '%s', '%s')", field, start, end)
	}
	uid := func(start, end string) string { return call(hashedUID, start, end) }
	const zero, one = "0x0000000000000000", "0x0000000000000001"

	f(" ", "empty shard selector is not allowed; omit the parameter for unfiltered lists")
	f(call("object.metadata.name", zero, one),
		`unsupported field path "object.metadata.name"; supported: object.metadata.uid, object.metadata.namespace`)
	f(uid("1", one), `hexStart must have '0x' prefix, got "1"`)
	f(uid(zero, "X"), `hexEnd must have '0x' prefix, got "X"`)
	f(uid("0x", one), `hexStart: hex value is required after '0x'`)
	f(uid(zero, "0x000000000000000001"), `hexEnd: hex value too long (18 chars, max 17): "000000000000000001"`)
	f(uid(zero, "0x000000000000000A"), `hexEnd: invalid hex character "A" in "0x000000000000000A"`)
	f(uid(zero, "0x00000000000000é"), `hexEnd: invalid hex character "é" in "0x00000000000000é"`)
	f(uid(zero, "0x10000000000000001"),
		`hexEnd: 17-digit hex value must be '0x10000000000000000' (2^64), got "0x10000000000000001"`)
	f(uid(zero, "0x8"), `hexEnd must be a 0x-prefixed 16-digit hex value, got "0x8" (did you mean "0x0000000000000008"?)`)
	f(uid(one, one), "shard range start "+one+" must be less than end "+one)
	f(uid(hashesEnd, hashesEnd), "shard range start "+hashesEnd+" must be less than end "+hashesEnd)
	f(uid(zero, one)+" || "+call(hashedNamespace, zero, one),
		`all shard ranges must use the same field, got "object.metadata.uid" and "object.metadata.namespace"`)
	f(uid("1", one)+" || x", "expected shardRange(FIELD, 'START', 'END') at byte 61") // the syntax comes first
	f(uid(zero, one)+" && "+uid(zero, one), "expected || at byte 76")
	f("x", "expected shardRange(FIELD, 'START', 'END') at byte 0")
	for _, other := range []string{"shardRange()", "shardRange(object.metadata.uid, 0, 8)", uid(zero, one) + "||",
		"||" + uid(zero, one), uid(zero, `0x\x30`), uid(zero, "'"+one+"'"), "1" + uid(zero, one),
		"shardRange(object.metadata.uid, '\n', '')", "\x00"} {
		if s := parseShardSelector(other); s.Err == nil {
			t.Errorf("%q: got %+v", other, s)
		}
	}
	f(strings.Repeat(lowerHalf+"||", MaxRequirements)+lowerHalf, errLargeShard.Error())
}

// A shardSelector counts towards the bytes of all selectors.
func TestShardSelectorSize(t *testing.T) {
	f := func(labels, selector string, want error) {
		t.Helper()
		target := "/api/v1/pods?labelSelector=" + url.QueryEscape(labels) + "&shardSelector=" + url.QueryEscape(selector)
		req, ok := Parse(&exchange.Exchange{Method: http.MethodGet, Protocol: exchange.HTTP11, Target: target})
		if !ok || req.Shard.Err != want || req.LargeSelectors != (want != nil) || !req.Sharded() {
			t.Errorf("selectors of %d and %d bytes: got %+v, %v", len(labels), len(selector), req.Shard, ok)
		}
	}
	labels := "a in (" + strings.Repeat("a-value-of-some-length,", 300) + "x)"
	f("", strings.Repeat(lowerHalf+"||", 98)+lowerHalf, nil)
	f(labels, lowerHalf, nil)
	f(labels, strings.Repeat(lowerHalf+"||", 50)+lowerHalf, errLargeShard)
	f("", strings.Repeat(lowerHalf+"||", 200)+lowerHalf, errLargeShard)
}

// FuzzShardSelector reads any text. What is taken means the same in its canonical form, and selects
// what Kubernetes' own selector of these ranges selects.
func FuzzShardSelector(f *testing.F) {
	for _, seed := range []string{"", lowerHalf, lowerHalf + "||" + upperHalf, upperHalf + " || " + upperHalf,
		strings.ReplaceAll(lowerHalf, "uid", "namespace"), strings.ReplaceAll(lowerHalf, "'", `"`), "(" + lowerHalf + ")",
		"shardRange(object.metadata.uid, '0x8000000000000000', '0x8000000000000001')"} {
		f.Add(seed, "6b1d9f3c-5b0e-4a57-9d0e-0a5f9c1e7b42", "default")
	}
	everything, _ := fanout.NewFilter("", nil, nil, nil)
	f.Fuzz(func(t *testing.T, text, uid, namespace string) {
		s := parseShardSelector(text)
		if s.Err != nil {
			if s.Text != "" || s.Err.Error() == "" {
				t.Errorf("%q: got %+v", text, s)
			}
			return
		}
		if again := parseShardSelector(s.Text); !reflect.DeepEqual(again, s) {
			t.Errorf("%q: got %+v, then %+v", text, s, again)
		}
		var requirements []sharding.ShardRangeRequirement
		for _, call := range strings.Split(s.Text, " || ") {
			field, start, end := "", "", ""
			words := strings.NewReplacer("shardRange(", "", ",", "", "'", "", ")", "").Replace(call)
			if _, err := fmt.Sscanf(words, "%s %s %s", &field, &start, &end); err != nil {
				t.Fatalf("%q: %q: %v", text, call, err)
			}
			requirements = append(requirements, sharding.ShardRangeRequirement{Key: field, Start: start, End: end})
		}
		uid, namespace = strings.ToValidUTF8(uid, ""), strings.ToValidUTF8(namespace, "")
		o := &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{UID: types.UID(uid), Namespace: namespace}}
		want, err := sharding.NewSelector(requirements...).Matches(o)
		if err != nil {
			t.Fatalf("%q: %v", text, err)
		}
		item := fmt.Appendf(nil, `{"metadata":{"name":"x","resourceVersion":"7","uid":%s,"namespace":%s}}`,
			quoted(uid), quoted(namespace))
		scanned, err := framing.NewScanner(framing.JSON, nil).Item(item, nil)
		if err != nil {
			t.Fatalf("%s: %v", item, err)
		}
		if got := everything.Within(s.Part).Match(scanned); got != want {
			t.Errorf("%q: %s: got %v, want %v", text, item, got, want)
		}
	})
}

// quoted returns s as JSON.
func quoted(s string) string {
	b, err := json.Marshal(s)
	if err != nil {
		panic(err)
	}
	return string(b)
}
