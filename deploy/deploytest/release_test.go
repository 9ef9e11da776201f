package deploytest

import (
	"encoding/json"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// A release has a program that knows its version, a bill of materials with the program's modules, and
// a chart of its version. Made twice it has the same bytes.
func TestRelease(t *testing.T) {
	const version = "9.8.7-rc.1"
	w := newWorkshop(t)
	release := func(arguments ...string) (out string, err error) {
		cmd := exec.Command("make", append([]string{"-s", "release"}, arguments...)...)
		cmd.Dir = w.dir
		said, err := cmd.CombinedOutput()
		return string(said), err
	}
	platform := runtime.GOOS + "/" + runtime.GOARCH
	sums := make([]string, 2)
	for i := range sums {
		if said, err := release("VERSION="+version, "PLATFORMS="+platform); err != nil {
			t.Fatalf("%v\n%s", err, said)
		}
		sums[i] = readFile(t, filepath.Join(w.dir, "bin/release/SHA256SUMS"))
	}
	if sums[0] != sums[1] || strings.Count(sums[0], "\n") != 3 {
		t.Errorf("two releases differ:\n%s\n%s", sums[0], sums[1])
	}
	name := "watchfan_" + version + "_" + strings.Replace(platform, "/", "_", 1)
	dir := filepath.Join(w.dir, "bin/release")
	run := func(name string, args ...string) string {
		t.Helper()
		cmd := exec.Command(name, args...)
		cmd.Dir = dir
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("%s %v: %v", name, args, err)
		}
		return string(out)
	}
	run("sha256sum", "-c", "SHA256SUMS")
	unpacked := t.TempDir()
	run("tar", "-xzf", name+".tar.gz", "-C", unpacked)
	for _, file := range []string{"LICENSE", "README.md", "CHANGELOG.md"} {
		if readFile(t, filepath.Join(unpacked, file)) == "" {
			t.Errorf("%s is empty", file)
		}
	}
	program := filepath.Join(unpacked, "watchfan")
	if got := run(program, "version"); !strings.HasPrefix(got, "watchfan "+version+" (commit ") {
		t.Errorf("the program is %s", got)
	}
	checkBill(t, readFile(t, filepath.Join(dir, name+".cdx.json")), run("go", "version", "-m", program), version)

	chart := t.TempDir()
	run("tar", "-xzf", "watchfan-"+version+".tgz", "-C", chart)
	var about struct{ Version, AppVersion string }
	decode(t, filepath.Join(chart, "watchfan/Chart.yaml"), &about)
	if about.Version != version || about.AppVersion != version {
		t.Errorf("the chart is %+v", about)
	}
	rendered := run(binary(t, "helm"), "template", filepath.Join(chart, "watchfan"), "--set", "image.repository=r")
	if !strings.Contains(rendered, "image: \"r:"+version+"\"") {
		t.Errorf("the chart does not name the image of its version:\n%s", rendered)
	}
}

// checkBill compares a bill of materials with the modules that are in a program.
func checkBill(t *testing.T, bill, modules, version string) {
	t.Helper()
	var b struct {
		BOMFormat string
		Metadata  struct {
			Component struct {
				Name, Version string
				Hashes        []any
			}
		}
		Components   []struct{ Name, Version, PURL string }
		Dependencies []struct{ DependsOn []string }
	}
	if err := json.Unmarshal([]byte(bill), &b); err != nil {
		t.Fatal(err)
	}
	if b.BOMFormat != "CycloneDX" || b.Metadata.Component.Name != "watchfan" || b.Metadata.Component.Version != version ||
		len(b.Metadata.Component.Hashes) != 1 || len(b.Dependencies) != 1 || len(b.Dependencies[0].DependsOn) != len(b.Components) {
		t.Errorf("the bill is of %+v", b.Metadata)
	}
	var got, want []string
	for _, c := range b.Components {
		if !strings.HasPrefix(c.PURL, "pkg:golang/"+strings.ToLower(c.Name)+"@") {
			t.Errorf("%s has the URL %s", c.Name, c.PURL)
		}
		if c.Name != "std" {
			got = append(got, c.Name+" "+c.Version)
		}
	}
	for _, m := range regexp.MustCompile(`(?m)^\tdep\t(\S+)\t(\S+)`).FindAllStringSubmatch(modules, -1) {
		want = append(want, m[1]+" "+m[2])
	}
	if len(want) < 10 || !slices.Equal(got, want) {
		t.Errorf("the bill has\n%v\nwant\n%v", got, want)
	}
}

// A version that is none, or has a v, is refused, and nothing is built.
func TestReleaseVersion(t *testing.T) {
	for _, version := range []string{"", "v1.2.3", "1.2", "1.2.3 ", "../1.2.3"} {
		cmd := exec.Command("../release/release.sh", version, t.TempDir())
		out, err := cmd.CombinedOutput()
		if err == nil || !strings.Contains(string(out), "is no version: give one as 0.2.0") {
			t.Errorf("%q: %v, %s", version, err, out)
		}
	}
}
