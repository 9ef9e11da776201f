package deploytest

import (
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	slsa "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
)

var rebuild = flag.Bool("rebuild", false, "compile everything anew for the second release")

// A release has a program that knows its version, the licences of what is in it, a bill of materials with
// its modules, a chart of its version, and a provenance. Made in another folder, with another
// environment, it has the same bytes. The image has the same program.
func TestRelease(t *testing.T) {
	version, platform := newestVersion(t)+"-rc.1", runtime.GOOS+"/"+runtime.GOARCH
	w := newWorkshop(t)
	release := func(version, fails string) {
		t.Helper()
		cmd := exec.Command("make", "-s", "release", "VERSION="+version, "PLATFORMS="+platform)
		cmd.Dir = w.dir
		if said, err := cmd.CombinedOutput(); (err != nil) != (fails != "") || !strings.Contains(string(said), fails) {
			t.Fatalf("%v\n%s\nwant %q", err, said, fails)
		}
	}
	release(version, "This is no checkout of git: a release names its commit.")
	w.commit(t)
	release("98.7.6", `CHANGELOG.md has no section "## 98.7.6"`)
	stray := filepath.Join(w.dir, "stray")
	if err := os.WriteFile(stray, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	release(version, "The working tree differs from its commit")
	if err := os.Remove(stray); err != nil {
		t.Fatal(err)
	}
	release(version, "")

	dir, again := filepath.Join(w.dir, "bin/release"), filepath.Join(t.TempDir(), "another", "folder")
	second := exec.Command("bash", "-euc", `umask 077; git clone -q "$1" "$2"; cd "$2"; mkdir bin; cp "$1"/bin/helm bin; `+
		`make -s release VERSION="$3" PLATFORMS="$4"`, "-", w.dir, again, version, platform)
	second.Env = append(os.Environ(), "TZ=Asia/Tokyo", "LC_ALL=en_US.UTF-8", "GOFLAGS=-tags=another", "GOAMD64=v3",
		"GOEXPERIMENT=nodwarf5")
	if *rebuild {
		second.Env = append(second.Env, "GOCACHE="+t.TempDir())
	}
	if said, err := second.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	sums := readFile(t, filepath.Join(dir, "SHA256SUMS"))
	other := readFile(t, filepath.Join(again, "bin/release/SHA256SUMS"))
	if sums != other || strings.Count(sums, "\n") != 4 {
		t.Errorf("two releases differ:\n%s\n%s", sums, other)
	}

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
	name := "watchfan_" + version + "_" + strings.Replace(platform, "/", "_", 1)
	unpacked := t.TempDir()
	run("tar", "-xzf", name+".tar.gz", "-C", unpacked)
	for file, has := range map[string]string{"LICENSE": "Apache", "README.md": "watchfan",
		"CHANGELOG.md": "\n## " + newestVersion(t) + "\n", "LICENSES.txt": "==== k8s.io/client-go v0."} {
		if !strings.Contains(readFile(t, filepath.Join(unpacked, file)), has) {
			t.Errorf("%s does not say %s", file, has)
		}
	}
	program, commit := filepath.Join(unpacked, "watchfan"), strings.TrimSpace(run("git", "rev-parse", "HEAD"))
	if got := run(program, "version"); !strings.HasPrefix(got, "watchfan "+version+" (commit "+commit+", ") {
		t.Errorf("the program is %s", got)
	}
	if readFile(t, w.buildImage(t, version, commit)) != readFile(t, program) {
		t.Error("the image has another program")
	}
	modules := run("go", "version", "-m", program)
	checkBill(t, readFile(t, filepath.Join(dir, name+".cdx.json")), modules, version)
	checkProvenance(t, readFile(t, filepath.Join(dir, "watchfan_"+version+".intoto.json")), modules, sums, commit)

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

// buildImage runs the command of the Dockerfile that builds the program, with the release's Go, and returns
// the file.
func (w *workshop) buildImage(t *testing.T, version, commit string) string {
	t.Helper()
	dockerfile := readFile(t, "../Dockerfile")
	command := regexp.MustCompile(`(?s)\nRUN (CGO_ENABLED=.*) -o /out/watchfan \.\n`).FindStringSubmatch(dockerfile)
	if command == nil {
		t.Fatal("the Dockerfile builds no program")
	}
	out := filepath.Join(t.TempDir(), "watchfan")
	build := strings.Replace(command[1], "GOTOOLCHAIN=local", "GOTOOLCHAIN="+toolchain(t), 1)
	cmd := exec.Command("bash", "-c", build+" -o "+out+" .")
	cmd.Dir = w.dir
	cmd.Env = append(os.Environ(), "TARGETOS="+runtime.GOOS, "TARGETARCH="+runtime.GOARCH, "VERSION="+version,
		"COMMIT="+commit)
	if said, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return out
}

// toolchain returns the version of Go that makes releases.
func toolchain(t *testing.T) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^toolchain=(go.*)$`).FindStringSubmatch(readFile(t, "../release/release.sh"))
	if m == nil {
		t.Fatal("release.sh names no toolchain")
	}
	return m[1]
}

// newestVersion returns the version of CHANGELOG.md's newest section.
func newestVersion(t *testing.T) string {
	t.Helper()
	m := regexp.MustCompile(`(?m)^## (\d+\.\d+\.\d+)$`).FindStringSubmatch(readFile(t, "../../CHANGELOG.md"))
	if m == nil {
		t.Fatal("CHANGELOG.md has no version")
	}
	return m[1]
}

// Manifests and documents name the newest version, and the image is built with the release's Go.
func TestNewestVersion(t *testing.T) {
	newest := newestVersion(t)
	for file, says := range map[string]string{
		"../chart/Chart.yaml":                              "\nversion: " + newest + "\n",
		"../sidecar/static-pod.yaml":                       "image: watchfan:" + newest + "\n",
		"../sidecar/daemonset.yaml":                        "image: watchfan:" + newest + "\n",
		"../../CONTRIBUTING.md":                            "$ make release VERSION=" + newest + " ",
		"../README.md":                                     "--set image.tag=" + newest + "\n",
		"../Dockerfile":                                    "ARG GO_IMAGE=golang:" + strings.TrimPrefix(toolchain(t), "go") + "\n",
		"../sidecar/patches/kube-apiserver+strategic.yaml": "image: watchfan:" + newest + "\n",
	} {
		if !strings.Contains(readFile(t, file), says) {
			t.Errorf("%s does not say %q", file, says)
		}
	}
}

// checkProvenance decodes a statement with in-toto's own types. Its subjects are the files that sums has,
// besides itself, and its materials the commit, Go and the modules.
func checkProvenance(t *testing.T, text, modules, sums, commit string) {
	t.Helper()
	var s intoto.Statement
	if err := protojson.Unmarshal([]byte(text), &s); err != nil {
		t.Fatal(err)
	}
	predicate, err := protojson.Marshal(s.Predicate)
	if err != nil {
		t.Fatal(err)
	}
	var p slsa.Provenance
	if err := errors.Join(s.Validate(), protojson.Unmarshal(predicate, &p), p.Validate()); err != nil {
		t.Fatal(err)
	}
	if s.PredicateType != "https://slsa.dev/provenance/v1" {
		t.Errorf("the predicate is %s", s.PredicateType)
	}
	for _, f := range s.Subject {
		line := f.Digest["sha256"] + "  " + f.Name + "\n"
		if rest := strings.Replace(sums, line, "", 1); rest != sums {
			sums = rest
			continue
		}
		t.Errorf("there is no file %s", line)
	}
	if !regexp.MustCompile(`^\w+  \S+\.intoto\.json\n$`).MatchString(sums) {
		t.Errorf("it says nothing of\n%s", sums)
	}
	var got, want []string
	for _, d := range p.BuildDefinition.ResolvedDependencies {
		got = append(got, d.Digest["gitCommit"]+d.Digest["dirHash"])
	}
	want = append(want, commit, "") // Go has no digest
	for _, m := range regexp.MustCompile(`(?m)^\tdep\t\S+\t\S+\th1:(\S+)$`).FindAllStringSubmatch(modules, -1) {
		sum, err := base64.StdEncoding.DecodeString(m[1])
		if err != nil {
			t.Fatal(err)
		}
		want = append(want, hex.EncodeToString(sum))
	}
	goVersion := regexp.MustCompile(`: go(\S+)\n`).FindStringSubmatch(modules)
	std := p.BuildDefinition.ResolvedDependencies[1].Uri
	if len(want) < 10 || !slices.Equal(got, want) || std != "pkg:golang/std@"+goVersion[1] {
		t.Errorf("it is made of %s and\n%v\nwant\n%v", std, got, want)
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
		Components []struct {
			Name, Version, PURL string
			Licenses            []struct {
				License    struct{ ID string }
				Expression string
			}
		}
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
		if !strings.HasPrefix(c.PURL, "pkg:golang/"+strings.ToLower(c.Name)+"@") || len(c.Licenses) != 1 ||
			c.Licenses[0].License.ID+c.Licenses[0].Expression == "" {
			t.Errorf("%s has the URL %s and the licences %v", c.Name, c.PURL, c.Licenses)
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
