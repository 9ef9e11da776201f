package chaos_test

import (
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"k8s.io/apimachinery/pkg/labels"
)

// quietView is a configuration with a quiet view of both resources: the metadata, without managedFields, of the
// objects that quietSelector selects.
const quietView = `apiVersion: watchfan.io/v1alpha1
kind: WatchfanConfiguration
views:
- name: quiet
  quiet: true
  resources:
  - {resource: configmaps, keep: [metadata], labelSelector: app!=c}
  - {resource: widgets.example.com, keep: [metadata], labelSelector: app!=c}
`

var quietSelector, _ = labels.Parse("app!=c")

// quietConfig writes the configuration.
func (s *suite) quietConfig() (file string) {
	file = filepath.Join(s.t.TempDir(), "quiet.yaml")
	if err := os.WriteFile(file, []byte(quietView), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

// inView is f in the view.
func (f form) inView() form {
	f.quiet = true
	return f
}

// inView returns what f selects in the view.
func (f filter) inView() filter {
	f.quiet = true
	return f
}

func (w way) inView() way {
	w.base += "/views/quiet"
	return w
}

// wants returns the digest of an object as a client in form f is shown it. lean says that it has to be
// without metadata.managedFields.
func (f form) wants(o *object, lean bool) digest {
	if f.quiet {
		return o.quiet
	}
	return f.of(o.shown(lean))
}

// unseen reports whether a client of f sees nothing of a change between two versions that it selects.
func (f filter) unseen(old, cur *object) bool { return f.quiet && old.quiet == cur.quiet }

// beQuiet makes the watchers in the view.
func (s *suite) beQuiet(add func(way, form, filter, beginning, manner)) {
	ours, theirs := s.entering(), s.waysOf(s.sibling.watchfan)
	quiet := func(kind int, f form, sel, n int, m manner) {
		w := ours[kind].inView()
		w.gzip = n%2 == 0 && kind != socketWay
		add(w, f.inView(), allFilters[sel].inView(), []beginning{byList, byWatchList, byStaleWatch}[n%3], m)
		if m == straying || m == wandering {
			s.watchers[len(s.watchers)-1].elsewhere = &server{theirs[kind].inView().client(), s.sibling.watchfan}
		}
	}
	quiet(plainWay, jsonForm, 0, 0, steady)
	quiet(http2Way, protobufForm, 0, 1, steady)
	quiet(socketWay, jsonForm, 3, 2, steady)
	quiet(tokenWay, jsonForm, 8, 3, steady)
	quiet(certificateWay, protobufForm, 2, 4, leaving)
	quiet(http2Way, jsonForm, 1, 0, slow)
	quiet(plainWay, protobufForm, 5, 1, straying)
	quiet(http2Way, jsonForm, 0, 3, wandering)
}

// TestOracleNoticesQuiet: in a quiet view the oracle accepts the changes that the view shows, and no others.
func TestOracleNoticesQuiet(t *testing.T) {
	t.Parallel()
	rng := rand.New(rand.NewPCG(5, 5))
	tr := historyOf(t, rng, 300)
	f := newFilter("widgets", "", "app=a", "")
	told := func(f filter) (events []event) {
		for want, ok := tr.next(f, 40); ok; want, ok = tr.next(f, want.rv) {
			e := event{typ: want.typ, rv: want.rv, key: want.key, shown: shown{want.as.quiet, digestBytes(want.as.quiet[:])}}
			e.less = e.shown
			events = append(events, e)
		}
		return events
	}
	notice := func(events []event, mistake string) {
		t.Helper()
		err := take(cursorAt(newOracle(tr), jsonForm.inView(), f.inView(), 40, new(relists)), events)
		if (err == nil) != (mistake == "") {
			t.Errorf("got %v, and the mistake is %q", err, mistake)
		}
	}
	right, all := told(f.inView()), told(f)
	if len(all) < len(right)+20 {
		t.Fatalf("%d changes, %d are visible: this shows little", len(all), len(right))
	}
	notice(right, "")
	notice(all, "the view shows nothing of some changes")
	for _, m := range mutations[:7] {
		notice(m.do(slices.Clone(right), 1+rng.IntN(len(right)-3)), m.name)
	}
}
