//go:build nightly

package e2e_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// TestEtcdRestored: when etcd is put back to an older state, clients are told to begin anew, and
// see nothing older than what they have seen. The backup is a copy of the data of a stopped etcd.
func TestEtcdRestored(t *testing.T) {
	parallel(t)
	c := privateCluster(t, endWatches...)
	direct := c.direct(t)
	createNamespaces(t, direct, "restored")
	uri := "/api/v1/namespaces/restored/configmaps"
	makeConfigMap(t, direct, "restored", "old", `"l":"1"`)
	etcd, backup := filepath.Join(c.Dir, "etcd"), filepath.Join(c.Dir, "backup")
	again := func(do func() error) {
		t.Helper()
		for _, step := range []func() error{c.Halt, do, c.Begin} {
			if err := step(); err != nil {
				t.Fatal(err)
			}
		}
	}
	again(func() error { return os.CopyFS(backup, os.DirFS(etcd)) })

	p := privateWatchfan(t, c)
	p.waitReady(t)
	ours, admin := p.plain(t), p.admin(t)
	makeConfigMap(t, direct, "restored", "new", `"l":"1"`)
	var streams []*recording
	for i := range 20 {
		query := []string{"", "&labelSelector=l%3D1", "&labelSelector=none", "&fieldSelector=metadata.name%3Dold"}[i%4]
		streams = append(streams, ours.watch(t, uri+"?watch=1&allowWatchBookmarks=1"+query))
	}
	// More than kube-apiserver writes at its start. With fewer, etcd would soon be where it was.
	var future uint64
	for i := range 1000 {
		future = direct.patch(t, uri+"/new", fmt.Sprintf(`{"data":{"n":"%d"}}`, i))
	}
	for i, s := range streams {
		if i%4 < 2 {
			s.wait(t, 1003)
		}
	}

	again(func() error {
		if err := os.RemoveAll(etcd); err != nil {
			return err
		}
		return os.Rename(backup, etcd)
	})
	if now := direct.version(t, uri); now >= future {
		t.Fatalf("the restored etcd is at %d already, and was at %d before", now, future)
	}
	for _, s := range streams {
		events := s.finish(t)
		if last := events[len(events)-1]; last.typ != "ERROR" || !strings.Contains(last.line, `"reason":"Expired","code":410`) {
			t.Errorf("%s ended with %s, want 410", s.uri, last.line)
		}
		if _, err := fold(events[:len(events)-1]); err != nil {
			t.Errorf("%s: %v", s.uri, err)
		}
	}
	if n := admin.metric(t, "watchfan_upstream_resets_total", `resource="configmaps"`); n != 1 {
		t.Errorf("%v resets", n)
	}

	fresh := ours.watch(t,
		uri+"?watch=1&allowWatchBookmarks=1&sendInitialEvents=true&resourceVersionMatch=NotOlderThan")
	events := fresh.wait(t, 2)
	if events[0].key != "restored/old" || !events[1].end {
		t.Errorf("a new watch begins with %s", format(events))
	}
	// A client that resumes from a resourceVersion that etcd has lost gets kube-apiserver's answer.
	reason := regexp.MustCompile(`"reason":"\w+"`)
	for _, query := range []string{"", "&resourceVersionMatch=Exact&limit=5"} {
		query = fmt.Sprintf("%s?resourceVersion=%d%s", uri, future, query)
		want, got := direct.get(t, query), ours.get(t, query)
		if want.status < 400 || got.status != want.status || !bytes.Equal(reason.Find(got.body), reason.Find(want.body)) {
			t.Errorf("a list from the future, %s: %d %s\nwant %d %s", query, got.status, got.body, want.status, want.body)
		}
	}
	ahead := fmt.Sprintf("%s?watch=1&resourceVersion=%d&timeoutSeconds=3", uri, future) //testlint:allow timeout nothing comes
	watched, wanted := ours.watch(t, ahead), direct.watch(t, ahead)
	rv := direct.patch(t, uri+"/old", `{"data":{"k":"1"}}`)
	fresh.wait(t, 3)
	if err := compare(watched.finish(t), wanted.finish(t)); err != nil ||
		watched.status != wanted.status {
		t.Errorf("a watch from the future: %d, want %d; %v", watched.status, wanted.status, err)
	}
	if events := fresh.all(); events[2].rv != rv {
		t.Errorf("the stream goes on with %s, want %d", events[2], rv)
	}
	fresh.stop()
}
