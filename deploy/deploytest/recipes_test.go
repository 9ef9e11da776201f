package deploytest

import (
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

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
