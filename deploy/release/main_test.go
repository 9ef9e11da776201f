package main

import "testing"

// A package URL has its path in lower case, and no plus sign.
func TestPackageURL(t *testing.T) {
	c := module("example.com/A", "1.2.3+x")
	if c.Name != "example.com/A" || c.Version != "1.2.3+x" || c.PackageURL != "pkg:golang/example.com/a@1.2.3%2Bx" {
		t.Errorf("got %+v", c)
	}
}

func TestNoBill(t *testing.T) {
	for _, file := range []string{"main.go", "no such file"} {
		if _, err := read(file, "1"); err == nil {
			t.Errorf("%s has a bill", file)
		}
	}
}
