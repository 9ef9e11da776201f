//go:build linux

package report

import "testing"

func TestSumSeries(t *testing.T) {
	const page = "# HELP apiserver_request_total …\n" +
		`apiserver_request_total{code="200",resource="pods",verb="LIST"} 3` + "\n" +
		`apiserver_request_total{code="504",resource="pods",verb="LIST"} 1e+02` + "\n" +
		`apiserver_request_total{code="200",resource="pods",verb="GET"} 7` + "\n" +
		`apiserver_request_total_bytes{resource="pods",verb="LIST"} 9` + "\n" +
		`broken{resource="pods"} many` + "\n"
	f := func(want float64, wantErr bool, name string, labels ...string) {
		t.Helper()
		got, err := SumSeries(page, name, labels...)
		if got != want || (err != nil) != wantErr {
			t.Errorf("%s%v: got %v, %v want %v", name, labels, got, err, want)
		}
	}
	f(103, false, "apiserver_request_total", `resource="pods"`, `verb="LIST"`)
	f(110, false, "apiserver_request_total")
	f(0, false, "apiserver_request_total", `resource="nodes"`)
	f(0, true, "broken")
}
