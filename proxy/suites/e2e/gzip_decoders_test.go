package e2e_test

import (
	"fmt"
	"net/http"
	"os/exec"
	"strings"
	"testing"
)

// decoders are programs that read a watch as gzip and print its lines as they come. Each has a
// decoder of its own. Those of Python and Java accept one gzip member and no more.
var decoders = map[string][]string{
	"curl": {"curl", "--silent", "--show-error", "--fail", "--no-buffer", "--compressed", "--header",
		"Accept-Encoding: gzip"},
	"Python": {"python3", "testdata/decoders/watch.py"},
	"Node":   {"node", "testdata/decoders/watch.mjs"},
	"Java":   {"java", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "testdata/decoders/Watch.java"},
}

// TestGzipDecoders: "Works with client-go, curl, Python, Node and Java-style strict single-member
// decoders". Each event arrives when it happens.
func TestGzipDecoders(t *testing.T) {
	parallel(t)
	c := sharedCluster(t)
	p := privateWatchfan(t, c)
	direct := c.direct(t)
	createNamespaces(t, direct, "decoders")
	const uri = "/api/v1/namespaces/decoders/configmaps"
	warm(t, []*target{p.plain(t)}, uri)
	since := fmt.Sprintf("%s?watch=1&resourceVersion=%d", uri, direct.version(t, uri))
	straight := direct.follow(t, since)
	all, got := make(map[string]*programOutput), make(map[string]string)
	for name, args := range decoders {
		all[name] = startProgram(t, name, exec.CommandContext(t.Context(), args[0], append(args[1:], "http://"+p.Ports.Insecure+since)...))
	}
	var last uint64
	for i := range 20 {
		step := fmt.Sprintf(`"step":"%d"`, i)
		object := fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"o"},`+
			`"data":{%s,"filler":%q}}`, step, strings.Repeat(fmt.Sprint(i), 700))
		method, at := http.MethodPut, uri+"/o"
		if i == 0 {
			method, at = http.MethodPost, uri
		}
		last = direct.must(t, method, at, jsonType, object)
		for name, d := range all {
			got[name] += strings.Join(d.until(t, step), "\n") + "\n" // before the next event pushes this one out
		}
	}
	want := strings.Join(lines(straight.until(t, last)), "")
	if sent := p.admin(t).metric(t, "watchfan_gzip_delivered_bytes_total"); sent == 0 {
		t.Error("nothing was sent as gzip")
	}
	if err := p.Stop(); err != nil { // which ends the streams properly
		t.Fatal(err)
	}
	for name, d := range all {
		for line := range d.lines {
			got[name] += line + "\n"
		}
		if err := d.cmd.Wait(); err != nil {
			t.Errorf("%s at the stream's end: %v: %s", name, err, d.stderr.String())
		}
		if got[name] != want {
			t.Errorf("%s prints\n%s\nwant\n%s", name, got[name], want)
		}
	}
}
