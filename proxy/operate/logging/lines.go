package logging

import (
	"io"
	"log/slog"
	"sync"
	"time"
)

const (
	// mostLogBytes bounds the lines of the log that wait to be written.
	mostLogBytes = 1 << 20
	// flushWait bounds the wait for them when the process ends.
	flushWait = time.Second
)

// logLines writes the lines of the log without waiting for who reads them: a standard error that
// nobody reads, as that of a log driver that hangs, must not stop requests. Lines beyond
// mostLogBytes are lost, and counted in a line of their own. Its methods may be called from any
// goroutine.
type logLines struct {
	w   io.Writer
	log *slog.Logger // writes to w, where its lines are not lost

	mu      sync.Mutex
	waiting []byte
	lost    int           // lines, since the last that waits
	written chan struct{} // closed when none waits; nil if none does
}

// Write implements io.Writer for one line.
func (l *logLines) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.waiting)+len(line) > mostLogBytes {
		l.lost++
		return len(line), nil
	}
	l.waiting = append(l.waiting, line...)
	if l.written == nil {
		l.written = make(chan struct{})
		go l.write()
	}
	return len(line), nil
}

// write writes until no line waits.
func (l *logLines) write() {
	for {
		lines, lost := l.take()
		if lines == nil {
			return
		}
		_, _ = l.w.Write(lines) // there is nowhere else to say that the log cannot be written
		if lost > 0 {
			l.log.Warn("Lost lines of this log, because it is not read fast enough", "lines", lost)
		}
	}
}

// take returns the lines that wait, and how many were lost after them. It returns nil at the end.
func (l *logLines) take() (lines []byte, lost int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.waiting == nil {
		close(l.written)
		l.written = nil
		return nil, 0
	}
	lines, lost = l.waiting, l.lost
	l.waiting, l.lost = nil, 0
	return lines, lost
}

// flush waits until all lines are written, or flushWait has passed.
func (l *logLines) flush() {
	l.mu.Lock()
	written := l.written
	l.mu.Unlock()
	if written == nil {
		return
	}
	select {
	case <-written:
	case <-time.After(flushWait):
	}
}
