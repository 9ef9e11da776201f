package deploytest

import (
	"os/exec"
	"regexp"
	"strings"
	"testing"
)

// checks is what a line of THREATS.md may name: tests, commands, or that it claims nothing.
var checks = regexp.MustCompile("`Test\\w+`|`make \\w+`|`go mod verify`|`watchfan version[ `]|no claim|not tried here|was measured")

// TestThreats: each claim of the threat model and of the page about the account, an item of a list or a row of a
// table, names a test or a command. Those exist. The threat model is one page.
func TestThreats(t *testing.T) {
	page := readFile(t, "../THREATS.md")
	if n := len(strings.Fields(strings.ReplaceAll(page, "|", " "))); n > 1600 {
		t.Errorf("the threat model has %d words", n)
	}
	text, claims := page+"\n\n"+readFile(t, "../ACCOUNT.md"), 0
	for _, claim := range threatClaims(text) {
		claims++
		if !checks.MatchString(claim) {
			t.Errorf("nothing checks\n%s", claim)
		}
	}
	if claims < 80 {
		t.Errorf("%d claims were found", claims)
	}
	tests := allTests(t)
	for _, m := range regexp.MustCompile("`(Test\\w+)`").FindAllStringSubmatch(text, -1) {
		if !strings.Contains(tests, "\nfunc "+m[1]+"(") {
			t.Errorf("there is no test %s", m[1])
		}
	}
	makefile := readFile(t, "../../Makefile")
	for _, m := range regexp.MustCompile("`make (\\w+)").FindAllStringSubmatch(text, -1) {
		if !regexp.MustCompile(`(?m)^` + m[1] + `:.*\S`).MatchString(makefile) {
			t.Errorf("there is no make %s", m[1])
		}
	}
	for _, m := range regexp.MustCompile("`watchfan ([a-z]+)[ `]").FindAllStringSubmatch(text, -1) {
		if out, err := exec.CommandContext(t.Context(), binary(t, "watchfan"), m[1], "--help").CombinedOutput(); err != nil ||
			!strings.Contains(string(out), "watchfan "+m[1]) {
			t.Errorf("watchfan %s: %v: %.200s", m[1], err, out)
		}
	}
}

// threatClaims returns the items of lists, and the rows of tables whose last column says what checks them.
func threatClaims(text string) (all []string) {
	for _, block := range strings.Split(text, "\n\n") {
		lines := strings.Split(block, "\n")
		switch head := lines[0]; {
		case strings.HasPrefix(head, "|"):
			if strings.HasSuffix(head, "| checked by |") {
				all = append(all, lines[2:]...)
			}
		case strings.HasPrefix(head, "- "):
			all = append(all, strings.Split("\n"+block, "\n- ")[1:]...)
		}
	}
	return all
}

// allTests returns the tests of all modules.
func allTests(t *testing.T) string {
	t.Helper()
	list, err := exec.Command("git", "-C", "../..", "ls-files", "-co", "--exclude-standard", "*_test.go").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all strings.Builder
	for name := range strings.Lines(string(list)) {
		all.WriteString(readFile(t, "../../"+strings.TrimSpace(name)))
	}
	return all.String()
}
