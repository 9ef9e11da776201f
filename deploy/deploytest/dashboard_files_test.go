package deploytest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/watchfan/watchfan/proxy/suites/proxytest"
)

const dashboardDir = "../dashboards"

// panel is the part of a dashboard's panel that tests need.
type panel struct {
	ID      int
	Type    string
	Title   string
	GridPos struct{ X, Y, W, H int }
	Targets []struct{ Expr, LegendFormat string }
}

// dashboards returns the panels of all dashboards, without rows, by file name.
func dashboards(t *testing.T) map[string][]panel {
	t.Helper()
	files, err := filepath.Glob(dashboardDir + "/*.json")
	if err != nil || len(files) < 4 {
		t.Fatalf("dashboards %v, %v", files, err)
	}
	all := make(map[string][]panel)
	for _, file := range files {
		var d struct{ Panels []panel }
		decode(t, file, &d)
		all[filepath.Base(file)] = slices.DeleteFunc(d.Panels, func(p panel) bool { return p.Type == "row" })
	}
	return all
}

// Each panel has a number and a place of its own, and asks for the instances that are chosen above.
func TestDashboardPanels(t *testing.T) {
	for file, panels := range dashboards(t) {
		ids, places := make(map[int]bool), make(map[[2]int]string)
		for _, p := range panels {
			if ids[p.ID] || len(p.Targets) == 0 {
				t.Errorf("%s: %s has the number %d, and %d queries", file, p.Title, p.ID, len(p.Targets))
			}
			ids[p.ID] = true
			for x := range p.GridPos.W {
				for y := range p.GridPos.H {
					place := [2]int{p.GridPos.X + x, p.GridPos.Y + y}
					if other := places[place]; other != "" || place[0] >= 24 {
						t.Fatalf("%s: %s is in the place of %s, or outside", file, p.Title, other)
					}
					places[place] = p.Title
				}
			}
			for _, q := range p.Targets {
				if n := strings.Count(q.Expr, "{"); n == 0 || strings.Count(q.Expr, `job=~"$job",instance=~"$instance"`) != n {
					t.Errorf("%s: %s selects other instances: %s", file, p.Title, q.Expr)
				}
			}
		}
	}
}

// TestDashboardSchema: the TypeScript compiler accepts each dashboard's JSON as a value of
// Grafana's own types, without unknown fields.
func TestDashboardSchema(t *testing.T) {
	schema := proxytest.Binary(t, "GRAFANA_SCHEMA", "grafana-schema", "deploytest")
	dir := t.TempDir()
	for _, name := range []string{"strict.ts", "tsconfig.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(readFile(t, "grafana/"+name)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(schema, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	for name := range dashboards(t) {
		text := fmt.Sprintf("import type { StrictDashboard } from './strict';\n"+
			"export const dashboard: StrictDashboard =\n%s;\n", readFile(t, filepath.Join(dashboardDir, name)))
		if err := os.WriteFile(filepath.Join(dir, name+".ts"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), filepath.Join(schema, "node_modules/.bin/tsc"), "-p", dir)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Errorf("%v\n%s", err, out)
	}
}
