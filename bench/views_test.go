package main

import (
	"strings"
	"testing"
)

// TestRollout: pods have the recorded lives as often as they were recorded, and each program has its view.
func TestRollout(t *testing.T) {
	t.Chdir("..")
	r, err := recordedRollout()
	if err != nil {
		t.Fatal(err)
	}
	for _, all := range []lives{r.Births, r.Deaths} {
		pods := 0
		for _, l := range all {
			pods += l.Pods
		}
		got := make(map[int]int) // pods, by the number that the recording has of their life
		for i := range pods {
			got[all.of(i).Pods]++
		}
		for of, n := range got {
			if n%of != 0 || len(got) != len(all) {
				t.Errorf("%d of %d pods have lives that %d of the recording had", n, pods, of)
			}
		}
	}
	views, err := quietViews()
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range viewRows {
		if !strings.Contains(views, "\n  - name: "+row.view+"\n") {
			t.Errorf("%s has no view %s", row.program, row.view)
		}
	}
}
