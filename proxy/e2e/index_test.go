package e2e_test

import (
	"bytes"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/proxytest/steady"
)

// TestIndexedReads: lists, pages and watches that select by a label, a field or a name are answered
// from an index with the bytes of kube-apiserver, while objects enter and leave the selectors.
func TestIndexedReads(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	p := privateWatchfan(t, c)
	ours, theirs := p.plain(t), c.direct(t)
	createNamespaces(t, theirs, "indexed", "indexed-b")
	const n = 400
	labels := func(i int) string { return fmt.Sprintf(`"ix":"%d","all":"x","odd":"%t"`, i%20, i%2 == 1) }
	for i := range n {
		makeConfigMap(t, theirs, []string{"indexed", "indexed-b"}[i/300], fmt.Sprintf("o%03d", i), labels(i))
	}
	selections := []string{
		"labelSelector=ix%3D7", "labelSelector=ix+in+(3,7,11)", "labelSelector=ix%3D7,odd%3Dtrue", "labelSelector=ix%3Dnone",
		"labelSelector=ix,ix!%3D7,odd%3Dtrue", "fieldSelector=metadata.name%3Do007", "labelSelector=!all,ix",
		"labelSelector=ix%3D7&fieldSelector=metadata.name%3Do007",
	}
	scopes := []string{"/api/v1/configmaps", "/api/v1/namespaces/indexed/configmaps", "/api/v1/namespaces/indexed-b/configmaps"}
	for range 40 { // until the indexes are worth building
		for _, s := range selections {
			ours.get(t, scopes[0]+"?resourceVersion=0&"+s)
		}
	}
	admin := p.admin(t)
	indexes := func() float64 { return admin.metric(t, "watchfan_cache_indexes", `resource="configmaps"`) }
	steady.Until(t, "indexes of two labels and the name", func() error {
		if n := indexes(); n < 3 {
			return fmt.Errorf("%v", n)
		}
		return nil
	})
	for round := range 3 {
		var rv uint64
		for i := round; i < n; i += 29 { // they enter, leave and stay in selectors
			uri := fmt.Sprintf("/api/v1/namespaces/%s/configmaps/o%03d", []string{"indexed", "indexed-b"}[i/300], i)
			rv = theirs.patch(t, uri, fmt.Sprintf(`{"metadata":{"labels":{"ix":"%d"}},"data":{"k":"%d"}}`, (i+round*7)%20, round))
		}
		for _, scope := range scopes {
			for _, s := range selections {
				at := fmt.Sprintf("%s?resourceVersionMatch=Exact&resourceVersion=%d&%s", scope, rv, s)
				ours.get(t, fmt.Sprintf("%s?resourceVersionMatch=NotOlderThan&resourceVersion=%d&limit=1", scope, rv))
				if got, want := ours.get(t, at), theirs.get(t, at); !bytes.Equal(got.body, want.body) || got.status != want.status {
					t.Errorf("%s: %d\n%.2000s\nwant %d\n%.2000s", at, got.status, got.body, want.status, want.body)
				}
				compareIndexedPages(t, ours, theirs, at+"&limit=7")
				compareIndexedWatch(t, ours, theirs, fmt.Sprintf("%s?watch=1&allowWatchBookmarks=true&sendInitialEvents=true"+
					"&resourceVersionMatch=NotOlderThan&resourceVersion=%d&%s", scope, rv, s))
			}
		}
	}
	if got := indexes(); got < 3 {
		t.Errorf("%v indexes, want as many as before", got)
	}
}

// compareIndexedPages compares the pages of a list, including their continue tokens' effect.
func compareIndexedPages(t *testing.T, ours, theirs *target, uri string) {
	t.Helper()
	pages := func(d *target) (all []string) {
		next := uri
		for range 60 {
			p := readPage(t, d, next)
			all = append(all, fmt.Sprintf("%s remaining %d more %t", p.Items, p.Metadata.RemainingItemCount, p.Metadata.Continue != ""))
			if p.Metadata.Continue == "" {
				return all
			}
			base, query, _ := strings.Cut(uri, "?")
			var kept []string
			for _, param := range strings.Split(query, "&") {
				if !strings.HasPrefix(param, "resourceVersion") {
					kept = append(kept, param)
				}
			}
			next = base + "?" + strings.Join(kept, "&") + "&continue=" + url.QueryEscape(p.Metadata.Continue)
		}
		t.Errorf("%s %s: no end", d.name, uri)
		return all
	}
	if got, want := pages(ours), pages(theirs); !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant\n%s", uri, strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

// compareIndexedWatch compares the initial events of a watch. kube-apiserver sends them in the
// order of their keys too.
func compareIndexedWatch(t *testing.T, ours, theirs *target, uri string) {
	t.Helper()
	initial := func(d *target) (lines []string) {
		r := d.watch(t, uri)
		defer r.stop()
		events := r.initial(t)
		for _, e := range events[:len(events)-1] {
			lines = append(lines, e.line)
		}
		return lines
	}
	if got, want := initial(ours), initial(theirs); !slices.Equal(got, want) {
		t.Errorf("%s:\n%s\nwant\n%s", uri, strings.Join(got, ""), strings.Join(want, ""))
	}
}
