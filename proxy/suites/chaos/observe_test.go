package chaos_test

import (
	"encoding/json"
	"os"
	"path/filepath"
)

// observeAll writes the configuration of a watchfan that observes all clients.
func (s *suite) observeAll() (file string) {
	file = filepath.Join(s.t.TempDir(), "observe.yaml")
	const config = "apiVersion: watchfan.io/v1alpha1\nkind: WatchfanConfiguration\nclients:\n- mode: observe\n"
	if err := os.WriteFile(file, []byte(config), 0o600); err != nil {
		s.t.Fatal(err)
	}
	return file
}

// judgeObserved fails the test if a cache would have answered otherwise than kube-apiserver did.
func (s *suite) judgeObserved() {
	var report struct {
		Verdict       string
		Events, Lists int
		Differences   map[string]int
		Skipped       map[string]int
		Recent        []struct {
			Resource, Verb, Kind, Key string
			ResourceVersion           uint64
			CacheResourceVersion      uint64
		}
	}
	page, err := s.observing.admin("/debug/observed")
	if err == nil {
		err = json.Unmarshal(page, &report)
	}
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Logf("observed: %s not compared: %v", report.Verdict, report.Skipped)
	if len(report.Differences) > 0 {
		s.t.Errorf("differences: %+v", report.Recent)
	}
	if *observed > 0 && s.modern && report.Events < 100 {
		s.t.Errorf("%d events were observed: this is too little to show anything", report.Events)
	}
}
