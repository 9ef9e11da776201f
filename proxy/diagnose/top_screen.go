package diagnose

import (
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/term"
)

// screen is top on a terminal: what it shows, and which watch its user has chosen. It belongs to one
// goroutine.
type screen struct {
	from  *adminPort
	query url.Values

	topView
	err       error          // of the last question; nil if it was answered
	explained *WatcherStatus // the watch that is explained; nil shows the list
	first     int            // how many watches are above the top of the screen
	row       int            // of the chosen watch in the list
	chosen    uint64         // its id; 0 for none
	height    int
}

func newScreen(from *adminPort, query url.Values) *screen {
	s := &screen{from: from, query: query}
	s.live, s.colours = true, os.Getenv("NO_COLOR") == ""
	s.order = query.Get("sort")
	s.width, s.height = 80, 24
	return s
}

// resize takes the terminal's size.
func (s *screen) resize(stdout *os.File) {
	if width, height, err := term.GetSize(int(stdout.Fd())); err == nil && width > 0 && height > 0 {
		s.width, s.height = width, height
	}
}

// room returns how many lines there are for watches.
func (s *screen) room() int { return max(s.height-topHead, 1) }

// ask asks for what the screen shows now.
func (s *screen) ask() {
	if s.explained != nil {
		s.askOne(s.explained.ID)
		return
	}
	s.query.Set("limit", strconv.Itoa(min(s.first+s.room(), mostShown)))
	if s.order != "" {
		s.query.Set("sort", s.order)
	}
	list, err := s.from.watchers(s.query)
	if s.err = err; err != nil {
		return
	}
	s.take(list, s.from.state())
}

// take shows a list. The chosen watch stays chosen while it is there.
func (s *screen) take(list *WatcherList, state *DebugState) {
	s.list, s.state = list, state
	at := slices.IndexFunc(list.Watchers, func(w WatcherStatus) bool { return w.ID == s.chosen })
	if at < 0 {
		at = s.row
	}
	s.choose(at)
}

// choose chooses the watch in a row, or the nearest there is, and brings it onto the screen.
func (s *screen) choose(row int) {
	s.row, s.chosen = max(min(row, len(s.list.Watchers)-1), 0), 0
	if len(s.list.Watchers) == 0 {
		s.first = 0
		return
	}
	s.chosen = s.list.Watchers[s.row].ID
	_, visible := s.list.fit(s.room())
	visible = max(visible, 1)
	s.first = max(min(s.first, s.row, len(s.list.Watchers)-visible), s.row-visible+1, 0)
}

// press acts on a key. It reports whether something else must be asked for.
func (s *screen) press(k key) (ask bool) {
	if s.explained != nil {
		if k == keyBack || k == keyEnter {
			s.explained, s.err = nil, nil
			return true
		}
		return false
	}
	if s.list == nil {
		return false
	}
	switch k {
	case keyUp:
		s.choose(s.row - 1)
	case keyFirst:
		s.choose(0)
	case keyLast:
		all := min(s.list.Matching, mostShown)
		s.first, s.row, s.chosen = max(all-s.room(), 0), max(all-1, 0), 0
		return true
	case keyDown:
		if s.row+1 < len(s.list.Watchers) {
			s.choose(s.row + 1)
		} else if len(s.list.Watchers) < min(s.list.Matching, mostShown) {
			s.first++
			s.chosen = 0 // the next, which is not known yet
			s.row++
			return true
		}
	case keySort:
		i := slices.Index(watcherSorts, s.order)
		s.order = watcherSorts[(max(i, 0)+1)%len(watcherSorts)]
		s.first, s.row, s.chosen = 0, 0, 0
		return true
	case keyEnter:
		if s.chosen != 0 {
			s.askOne(s.chosen)
		}
	}
	return false
}

// askOne asks for the explanation of a watch. If the watch has ended, the last explanation stays.
func (s *screen) askOne(id uint64) {
	w, err := s.from.watcher(id)
	if s.err = err; err == nil {
		s.explained = w
	}
}

// picture returns the screen, over the previous one.
func (s *screen) picture() string {
	var all []line
	switch {
	case s.explained != nil:
		all = explanationLines(s.explained, s.err, s.width, s.height)
	case s.err != nil:
		all = plainLines(wrap(s.err.Error(), s.width))
	case s.list != nil:
		shown := *s
		part := *s.list
		passed, watches := part.fit(s.room())
		end := min(s.first+watches, len(part.Watchers))
		part.Watchers, part.Passed.Watchers = part.Watchers[min(s.first, end):end], part.Passed.Watchers[:passed]
		shown.list, shown.selected = &part, s.chosen
		all = shown.lines()
	}
	all = all[:min(len(all), s.height)]
	texts := make([]string, 0, len(all))
	for _, l := range all {
		texts = append(texts, l.draw(s.colours))
	}
	return "\x1b[H" + strings.Join(texts, "\x1b[K\r\n") + "\x1b[K\x1b[J"
}
