package deploytest

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// Each recipe says all that a reader asks, in the same order.
func TestRecipesAreWhole(t *testing.T) {
	rows, recipes := regexp.MustCompile(`(?m)^\| (set|watches|saves|mind|read in|run here) \| \S`), 0
	for _, section := range strings.Split(readFile(t, "../RECIPES.md"), "\n## ")[1:] {
		var got []string
		for _, m := range rows.FindAllStringSubmatch(section, -1) {
			if m[1] != "read in" {
				got = append(got, m[1])
			}
		}
		if name, _, _ := strings.Cut(section, "\n"); len(got) > 0 {
			recipes++
			if strings.Join(got, " ") != "set watches saves mind run here" {
				t.Errorf("%s has the rows %v", name, got)
			}
		}
	}
	if recipes < 15 {
		t.Errorf("%d recipes are found", recipes)
	}
}

// Each test that a recipe names exists.
func TestRecipesNameTests(t *testing.T) {
	tests := ""
	for _, pattern := range []string{"../../proxy/suites/e2e/*_test.go", "*_test.go"} {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			tests += readFile(t, file)
		}
	}
	named := regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(readFile(t, "../RECIPES.md"), -1)
	if len(named) == 0 {
		t.Error("no recipe names a test")
	}
	for _, name := range named {
		if !strings.Contains(tests, "\nfunc "+name[1]+"(") {
			t.Errorf("RECIPES.md names %s, which does not exist", name[1])
		}
	}
}
