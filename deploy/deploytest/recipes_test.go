package deploytest

import (
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// recipes returns the sections of deploy/RECIPES.md by title.
func recipes(t *testing.T) map[string]string {
	t.Helper()
	sections := make(map[string]string)
	for _, section := range strings.Split(readFile(t, "../RECIPES.md"), "\n## ")[1:] {
		title, text, _ := strings.Cut(section, "\n")
		sections[title] = text
	}
	return sections
}

// Each recipe has the same five rows. Its last one names a test that exists, or says that there is
// none.
func TestRecipeRows(t *testing.T) {
	known := testNames(t, "../../proxy/e2e/*_test.go", "*_test.go")
	rows, want := regexp.MustCompile(`(?m)^\| (\w[^|]*) \| (.+) \|$`), []string{"set", "watches", "saves", "mind", "run here"}
	name, found := regexp.MustCompile("`(Test\\w+)`"), 0
	for title, text := range recipes(t) {
		for _, test := range name.FindAllStringSubmatch(text, -1) {
			if !slices.Contains(known, test[1]) {
				t.Errorf("%s names %s, which does not exist", title, test[1])
			}
		}
		if !strings.HasPrefix(text, "\n| | |\n|---|---|\n| set |") {
			continue // not a recipe
		}
		found++
		var got []string
		last := ""
		for _, row := range rows.FindAllStringSubmatch(text, -1) {
			got, last = append(got, row[1]), row[2]
		}
		if !slices.Equal(got, want) {
			t.Errorf("%s has the rows %q, want %q", title, got, want)
		}
		if !strings.HasPrefix(last, "not run here") && !(strings.HasPrefix(last, "yes") && name.MatchString(last)) {
			t.Errorf("%s does not say whether a test runs it: %s", title, last)
		}
	}
	if found < 9 {
		t.Errorf("%d recipes, want 9 at least", found)
	}
}

// testNames returns the tests in files.
func testNames(t *testing.T, patterns ...string) (names []string) {
	t.Helper()
	test := regexp.MustCompile(`(?m)^func (Test\w+)\(`)
	for _, pattern := range patterns {
		files, err := filepath.Glob(pattern)
		if err != nil || len(files) == 0 {
			t.Fatalf("%s: %d files, %v", pattern, len(files), err)
		}
		for _, file := range files {
			for _, m := range test.FindAllStringSubmatch(readFile(t, file), -1) {
				names = append(names, m[1])
			}
		}
	}
	return names
}
