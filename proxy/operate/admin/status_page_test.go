package admin

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// The status page and its files come from the admin port, under any prefix. The page may use
// nothing else. Package statustest tests it in a browser.
func TestStatusPage(t *testing.T) {
	p := startPort(t, Config{})
	get := func(path, mediaType string) string {
		t.Helper()
		resp, body := p.do(http.MethodGet, path, nil)
		if resp.StatusCode != http.StatusOK || resp.Header.Get("Content-Type") != mediaType {
			t.Errorf("%s: got %s, %s", path, resp.Status, resp.Header.Get("Content-Type"))
		}
		for key, want := range map[string]string{
			"X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer",
			"Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; " +
				"connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; " +
				"require-trusted-types-for 'script'",
		} {
			if got := resp.Header.Get(key); got != want {
				t.Errorf("%s: got %s %q, want %q", path, key, got, want)
			}
		}
		return body
	}
	page := get("/", "text/html; charset=utf-8")
	if get("/statusz", "text/html; charset=utf-8") != page {
		t.Error("/statusz is another page than /")
	}
	if !strings.Contains(page, "<title>watchfan</title>") {
		t.Errorf("got %s", page)
	}
	types := map[string]string{".css": "text/css; charset=utf-8", ".js": "text/javascript; charset=utf-8",
		".svg": "image/svg+xml"}
	files := make(map[string]bool)
	for _, m := range regexp.MustCompile(`(?:src|href)="([^"#]+)"`).FindAllStringSubmatch(page, -1) {
		if strings.HasPrefix(m[1], "/") || strings.Contains(m[1], ":") {
			t.Errorf("%s is not relative", m[1])
		}
		if mediaType, ok := types[filepath.Ext(m[1])]; ok {
			get("/"+m[1], mediaType)
			files[filepath.Base(m[1])] = true
		}
	}
	if len(files) != 3 {
		t.Errorf("the page uses %v", files)
	}
	entries, err := os.ReadDir("../diagnose/status_page")
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range entries {
		if !files[entry.Name()] && entry.Name() != "index.html" {
			t.Errorf("%s is not used", entry.Name())
		}
		content, err := os.ReadFile("../diagnose/status_page/" + entry.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, url := range regexp.MustCompile(`https?://\S+`).FindAllString(string(content), -1) {
			if !strings.HasPrefix(url, "http://www.w3.org/2000/svg") {
				t.Errorf("%s names %s", entry.Name(), url)
			}
		}
	}
}
