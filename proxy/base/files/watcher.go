package files

import (
	"log/slog"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// statInterval is the least time between two looks at the attributes of files.
const statInterval = 10 * time.Second

// Watcher holds what files contain, and reads them again when they change. If the files cannot
// be read, for example because only one of two has been replaced yet, the old value stays in use.
// It has no goroutine: Current looks at the files, one call at a time. Where the files' volume hangs,
// that one call hangs, and the others go on with the old value. Its methods may be called from any
// goroutine.
type Watcher[T any] struct {
	// Immutable.
	content string // for the log
	files   []string
	read    func() (T, error)
	log     *slog.Logger

	value atomic.Pointer[T]

	looking sync.Mutex    // held while the files are looked at
	stamps  []os.FileInfo // of the files when value was read; nil before that
	checked time.Time
}

// Watch reads the files. An error here means that the server must not start. content names
// what the files hold in the log.
func Watch[T any](content string, read func() (T, error), log *slog.Logger, files ...string) (*Watcher[T], error) {
	w := &Watcher[T]{content: content, files: files, read: read, log: log, checked: time.Now()}
	_, err := w.readLocked()
	return w, err
}

// Current returns what the files hold, or held at most statInterval ago, or before another call
// began to look at them.
func (w *Watcher[T]) Current() T {
	if w.looking.TryLock() {
		defer w.looking.Unlock()
		w.lookLocked()
	}
	return *w.value.Load()
}

// Read returns what the files hold, after it has read them again if they have changed. It is for a
// caller that looks when it wants to, and logs what it finds.
func (w *Watcher[T]) Read() (value T, changed bool, err error) {
	w.looking.Lock()
	defer w.looking.Unlock()
	changed, err = w.readLocked()
	if p := w.value.Load(); p != nil {
		value = *p
	}
	return value, changed, err
}

func (w *Watcher[T]) lookLocked() {
	if time.Since(w.checked) < statInterval {
		return
	}
	w.checked = time.Now()
	changed, err := w.readLocked()
	switch {
	case err != nil:
		w.log.Warn("Reading a changed file failed", "file", w.files[0], "holds", w.content, "err", err)
	case changed:
		w.log.Info("Reloaded a changed file", "file", w.files[0], "holds", w.content)
	}
}

// readLocked reads the files if they have changed.
func (w *Watcher[T]) readLocked() (changed bool, err error) {
	stamps := make([]os.FileInfo, len(w.files))
	for i, name := range w.files {
		info, err := os.Stat(name)
		if err != nil {
			return false, err
		}
		stamps[i] = info
	}
	if slices.EqualFunc(stamps, w.stamps, unchanged) {
		return false, nil
	}
	value, err := w.read()
	if err != nil {
		return false, err
	}
	w.value.Store(&value)
	w.stamps = stamps
	return true, nil
}

// unchanged reports whether a file is the same as before. A file that replaces another may have the
// same time, if a program has kept it or the file system has one time for all files.
func unchanged(now, before os.FileInfo) bool {
	return os.SameFile(now, before) && now.Size() == before.Size() && now.ModTime().Equal(before.ModTime())
}
