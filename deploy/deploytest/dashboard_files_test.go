package deploytest

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

var update = flag.Bool("update", false, "write deploy/dashboards and deploy/METRICS.md")

const dashboardDir = "../dashboards"

// TestDashboardFiles: the files are those that dashboards_test.go describes, with the same content.
func TestDashboardFiles(t *testing.T) {
	for name, d := range dashboards {
		file := filepath.Join(dashboardDir, name)
		if *update {
			if err := os.WriteFile(file, d.marshal(), 0o644); err != nil {
				t.Fatal(err)
			}
		}
		if !bytes.Equal([]byte(readFile(t, file)), d.marshal()) {
			t.Errorf("%s is out of date: make deploytest UPDATE=1", file)
		}
	}
	files, err := filepath.Glob(dashboardDir + "/*")
	if err != nil || len(files) != len(dashboards) {
		t.Errorf("%v in %s, want %d", files, dashboardDir, len(dashboards))
	}
}

// TestDashboardSchema: the TypeScript compiler accepts each dashboard's JSON as a value of
// Grafana's own types, without unknown fields.
func TestDashboardSchema(t *testing.T) {
	schema := binary(t, "GRAFANA_SCHEMA")
	dir := t.TempDir()
	for _, name := range []string{"strict.ts", "tsconfig.json"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(readFile(t, "grafana/"+name)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink(filepath.Join(schema, "node_modules"), filepath.Join(dir, "node_modules")); err != nil {
		t.Fatal(err)
	}
	for name := range dashboards {
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
