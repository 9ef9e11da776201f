package main

import (
	"bytes"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"

	cdx "github.com/CycloneDX/cyclonedx-go"
)

// The bill of this test program has the modules that go version -m lists, and no others. It can be
// read back.
func TestBill(t *testing.T) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	list, err := exec.Command("go", "version", "-m", program).Output()
	if err != nil {
		t.Fatal(err)
	}
	var want []string
	for _, m := range regexp.MustCompile(`(?m)^\tdep\t(\S+)\t(\S+)`).FindAllStringSubmatch(string(list), -1) {
		want = append(want, m[1]+" "+m[2])
	}
	if len(want) == 0 {
		t.Fatalf("no module in\n%s", list)
	}
	bill, err := read(program, "1.2.3+x")
	if err != nil {
		t.Fatal(err)
	}
	var text bytes.Buffer
	if err := cdx.NewBOMEncoder(&text, cdx.BOMFileFormatJSON).Encode(bill); err != nil {
		t.Fatal(err)
	}
	var back cdx.BOM
	if err := cdx.NewBOMDecoder(&text, cdx.BOMFileFormatJSON).Decode(&back); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, c := range (*back.Components)[1:] {
		got = append(got, c.Name+" "+c.Version)
		if path, _, _ := strings.Cut(c.PackageURL, "@"); path != "pkg:golang/"+strings.ToLower(c.Name) {
			t.Errorf("%s has the URL %s", c.Name, c.PackageURL)
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%v\nwant\n%v", got, want)
	}
	if std := (*back.Components)[0]; std.Name != "std" || !strings.HasPrefix(std.Version, "1.") {
		t.Errorf("the standard library is %s %s", std.Name, std.Version)
	}
	c := back.Metadata.Component
	if c.Version != "1.2.3+x" || !strings.HasSuffix(c.PackageURL, "@1.2.3%2Bx") || len(*c.Hashes) != 1 {
		t.Errorf("the program is %+v", c)
	}
	if uses := (*back.Dependencies)[0].Dependencies; len(*uses) != len(want)+1 {
		t.Errorf("%d dependencies, want %d", len(*uses), len(want)+1)
	}
}

func TestNoBill(t *testing.T) {
	if _, err := read("main.go", "1"); err == nil {
		t.Error("a source file has a bill")
	}
	if _, err := read("no such file", "1"); err == nil {
		t.Error("a missing file has a bill")
	}
}
