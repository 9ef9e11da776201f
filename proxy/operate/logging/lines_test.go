package logging

import (
	"io"
	"log/slog"
	"os"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// TestUnreadLog: nothing waits for a log that is not read. Its first lines are kept, in order, and it
// says where and how many are lost. The end of the process waits for it for a second.
func TestUnreadLog(t *testing.T) {
	t.Cleanup(func() { New(slog.LevelInfo, "text", os.Stderr) })
	synctest.Test(t, func(t *testing.T) {
		const written = 40_000
		r, w := io.Pipe()
		log, flush := New(slog.LevelInfo, "text", w)
		for i := range written {
			log.Info("Line", "events", i)
		}
		began := time.Now()
		flush()
		if took := time.Since(began); took != time.Second {
			t.Errorf("flush waited for %v", took)
		}
		got := make(chan string)
		go func() {
			all, _ := io.ReadAll(r)
			got <- string(all)
		}()
		flush()
		w.Close()
		kept, lost := 0, 0
		for line := range strings.Lines(<-got) {
			if _, n, ok := strings.Cut(line, " lines="); ok {
				more, _ := strconv.Atoi(strings.TrimSpace(n))
				lost += more
			} else if !strings.HasSuffix(line, " events="+strconv.Itoa(kept+lost)+"\n") {
				t.Fatalf("line %d, behind %d that are lost, is %s", kept, lost, line)
			} else {
				kept++
			}
		}
		if lost == 0 || kept < 10_000 || kept+lost != written {
			t.Errorf("%d lines are kept and %d lost, of %d", kept, lost, written)
		}
	})
}
