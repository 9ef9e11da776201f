//go:build linux

package server

import (
	"io"
	"maps"
	"os"
	"path/filepath"
	"testing"
)

func TestAuditCount(t *testing.T) {
	a, err := NewAuditLog(t.TempDir(), "configmaps", "watcher")
	if err != nil {
		t.Fatal(err)
	}
	const watchfan = `"userAgent":"watchfan/v1 (linux/amd64)"`
	add := func(lines string) {
		t.Helper()
		f, err := os.OpenFile(a.path, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		if _, err := io.WriteString(f, lines); err != nil {
			t.Fatal(err)
		}
	}
	f := func(want map[string]int) {
		t.Helper()
		got, err := a.Count()
		if err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(got, want) {
			t.Errorf("got %v, want %v", got, want)
		}
	}
	add(`{"verb":"watch","requestURI":"/api/v1/configmaps?sendInitialEvents=true&timeoutSeconds=345&watch=true",` + watchfan + "}\n" +
		`{"verb":"watch","requestURI":"/api/v1/configmaps?resourceVersion=5&timeoutSeconds=345&watch=true",` + watchfan + "}\n" +
		`{"verb":"watch","requestURI":"/api/v1/configmaps?resourceVersion=5&timeoutSeconds=3&watch=true",` + watchfan + "}\n" + //testlint:allow timeout nothing is watched
		`{"verb":"list","requestURI":"/api/v1/namespaces/-/configmaps?limit=1",` + watchfan + "}\n" +
		`{"verb":"list","requestURI":"/api/v1/configmaps?fieldSelector=metadata.name%3D-&resourceVersion=0",` + watchfan + "}\n" +
		`{"verb":"list","requestURI":"/api/v1/configmaps",` + watchfan + "}\n" +
		`{"verb":"list","requestURI":"/api/v1/configmaps?limit=500&resourceVersion=5&resourceVersionMatch=Exact",` + watchfan + "}\n" +
		`{"verb":"list","requestURI":"/api/v1/configmaps","userAgent":"kube-apiserver/v1"}` + "\n" +
		`{"verb":"list","requestURI":"/api/v1/configmaps","userAgent":"watcher"}` + "\n" +
		`{"verb":"watch","requestURI":"/api/v1/conf`)
	f(map[string]int{"lanes": 2, "history": 2, "versions": 2, "proof-lists": 1, "passed": 1})
	add(`igmaps?watch=1","userAgent":"watcher"}` + "\n")
	f(map[string]int{"passed": 1})
	f(map[string]int{})
	if _, err := NewAuditLog(filepath.Join(t.TempDir(), "none"), "x", ""); err == nil {
		t.Error("no error for a directory that is not there")
	}
}
