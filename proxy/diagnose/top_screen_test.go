package diagnose

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"net/url"
	"strconv"
	"strings"
	"testing"
)

// adminWithWatches is an admin port with so many watches, whose ids begin with 1.
func adminWithWatches(t *testing.T, watches *int) *adminPort {
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Server", serverName)
		one, isOne := strings.CutPrefix(r.URL.Path, WatchersPath+"/")
		switch {
		case r.URL.Path == "/debug/lanes":
			_ = json.NewEncoder(w).Encode(exampleState())
		case isOne:
			id, _ := strconv.ParseUint(one, 10, 64)
			if id > uint64(*watches) {
				http.Error(w, "there is no watch "+one, http.StatusNotFound)
				return
			}
			_ = json.NewEncoder(w).Encode(WatcherStatus{ID: id, Reason: NetworkLoss,
				Verdict: &Verdict{NetworkLoss, strings.Repeat("It is lost. ", 20), "Look at the cable."}})
		default:
			limit, _ := strconv.Atoi(r.URL.Query().Get("limit"))
			list := WatcherList{Total: *watches, Matching: *watches, Reasons: map[Cause]int{UpToDate: *watches}}
			for id := 1; id <= min(*watches, limit); id++ {
				list.Watchers = append(list.Watchers, WatcherStatus{ID: uint64(id), Reason: UpToDate, UserAgent: r.URL.Query().Get("sort")})
			}
			_ = json.NewEncoder(w).Encode(list)
		}
	}))
	t.Cleanup(s.Close)
	return &adminPort{url: s.URL}
}

// typed presses keys as topLive does.
func (s *screen) typed(keys string) {
	for _, k := range parseKeys([]byte(keys)) {
		if s.press(k) {
			s.ask()
		}
	}
}

// The keys move through the list, beyond the screen too. The chosen watch stays chosen and visible.
func TestScreenKeys(t *testing.T) {
	t.Setenv("NO_COLOR", "1")
	watches := 12
	s := newScreen(adminWithWatches(t, &watches), make(url.Values))
	s.height = topHead + 4
	s.ask()
	check := func(keys string, want uint64, first int) {
		t.Helper()
		s.typed(keys)
		picture := s.picture()
		if s.chosen != want || !strings.Contains(picture, fmt.Sprintf("\x1b[7m%6d ", want)) ||
			!strings.Contains(picture, fmt.Sprintf("\n%6d ", first)) && !strings.Contains(picture, fmt.Sprintf("\n\x1b[7m%6d ", first)) {
			t.Errorf("after %q watch %d is chosen, want %d below %d in\n%q", keys, s.chosen, want, first, picture)
		}
		if n := strings.Count(picture, "\n") + 1; n > s.height {
			t.Errorf("%d lines on a terminal of %d", n, s.height)
		}
	}
	check("", 1, 1)
	check("k", 1, 1)
	check("jjj", 4, 1)
	check("j", 5, 2)
	check("jjjjjjjjjj", 12, 9)
	check("j", 12, 9)
	check("kkkk", 8, 8)
	check("g", 1, 1)
	check("G", 12, 9)
	watches = 10
	s.ask()
	check("", 10, 7)
	watches = 0
	s.ask()
	if s.typed("jk\r"); s.chosen != 0 || s.explained != nil {
		t.Errorf("of no watches, %d is chosen", s.chosen)
	}
	watches = 2
	s.ask()
	check("j", 2, 1)
}

// s sorts by the next column, and comes round.
func TestScreenSort(t *testing.T) {
	watches := 1
	s := newScreen(adminWithWatches(t, &watches), make(url.Values))
	s.ask()
	for range 2 {
		for _, order := range append(watcherSorts[1:], watcherSorts[0]) {
			s.typed("s")
			if got := s.list.Watchers[0].UserAgent; got != order || !strings.Contains(s.picture(), "1 shown, by "+order) {
				t.Errorf("sorted by %q, want %q", got, order)
			}
		}
	}
}

// Enter explains the chosen watch, in lines that fit. Escape goes back. A watch that ends keeps its
// explanation.
func TestScreenExplains(t *testing.T) {
	watches := 3
	s := newScreen(adminWithWatches(t, &watches), make(url.Values))
	s.width = 40
	s.ask()
	s.typed("j\r")
	picture := s.picture()
	if !strings.Contains(picture, "Watch 2: NetworkLoss") || !strings.Contains(picture, "Look at the cable.") {
		t.Errorf("explained by %q", picture)
	}
	for _, l := range explanationLines(s.explained, nil, s.width, s.height) {
		if len([]rune(l.text)) > s.width {
			t.Errorf("a line of %d characters: %q", len([]rune(l.text)), l.text)
		}
	}
	s.height = 6
	if picture := s.picture(); strings.Count(picture, "\n") != 5 || !strings.Contains(picture, "\nEscape goes back  q ends\x1b") {
		t.Errorf("on six lines: %q", picture)
	}
	s.height = 24
	watches = 1
	s.ask()
	if picture := s.picture(); !strings.Contains(picture, "Watch 2: NetworkLoss") || !strings.Contains(picture, "This is the last answer:") {
		t.Errorf("of a watch that has ended: %q", picture)
	}
	s.typed("\x1b")
	if picture := s.picture(); !strings.Contains(picture, "watchfan: 1 watches") || strings.Contains(picture, "last answer") {
		t.Errorf("after Escape: %q", picture)
	}
}

// An error fills the screen until there is an answer again.
func TestScreenError(t *testing.T) {
	s := newScreen(&adminPort{url: "http://127.0.0.1:1"}, make(url.Values))
	s.width = 30
	s.ask()
	if s.typed("j\r"); !strings.Contains(s.picture(), "watchfan's admin port") {
		t.Errorf("drew %q", s.picture())
	}
	watches := 1
	s.from = adminWithWatches(t, &watches)
	s.ask()
	if !strings.Contains(s.picture(), "1 watches") {
		t.Errorf("drew %q", s.picture())
	}
}
