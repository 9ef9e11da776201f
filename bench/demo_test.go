//go:build linux

package main

import "testing"

func TestParseWatches(t *testing.T) {
	f := func(page string, want int, wantErr bool) {
		t.Helper()
		got, err := parseWatches(page)
		if got != want || (err != nil) != wantErr {
			t.Errorf("got %d, %v want %d, error %v", got, err, want, wantErr)
		}
	}
	series := func(resource, scope, verb, value string) string {
		return `apiserver_longrunning_requests{component="apiserver",group="",resource="` + resource + `",scope="` + scope +
			`",subresource="",verb="` + verb + `",version="v1"} ` + value + "\n"
	}
	f("# HELP apiserver_longrunning_requests …\n"+
		series("configmaps", "cluster", "WATCH", "1")+series("configmaps", "namespace", "WATCH", "1e+03")+
		series("pods", "cluster", "WATCH", "5")+series("configmaps", "cluster", "CONNECT", "5"), 1001, false)
	f("", 0, false)
	f(series("configmaps", "cluster", "WATCH", "many"), 0, true)
}
