package proxy

import (
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

// reloadInterval is how often, at most, it is looked whether files have changed.
const reloadInterval = 10 * time.Second

// reloaded is what files hold, read again when they change. Files that cannot be read, for example because only one of two has
// been replaced yet, leave the old value in use. Its methods may be called from any goroutine.
type reloaded[T any] struct {
	what  string // for the log
	files []string
	read  func() (T, error)
	log   *slog.Logger

	mu      sync.Mutex
	value   T
	stamps  []time.Time // modification times of what value was read from; nil before that
	checked time.Time
}

// load reads the files for the first time, so that wrong ones are an error at the start.
func (r *reloaded[T]) load() error {
	r.checked = time.Now()
	_, err := r.readLocked()
	return err
}

// current returns what the files hold, or held at most reloadInterval ago.
func (r *reloaded[T]) current() T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if time.Since(r.checked) >= reloadInterval {
		r.checked = time.Now()
		changed, err := r.readLocked()
		switch {
		case err != nil:
			r.log.Warn("Reading a changed file failed", "file", r.files[0], "holds", r.what, "err", err)
		case changed:
			r.log.Info("Reloaded a changed file", "file", r.files[0], "holds", r.what)
		}
	}
	return r.value
}

// readLocked reads the files if they have changed.
func (r *reloaded[T]) readLocked() (changed bool, err error) {
	stamps := make([]time.Time, len(r.files))
	for i, name := range r.files {
		info, err := os.Stat(name)
		if err != nil {
			return false, err
		}
		stamps[i] = info.ModTime()
	}
	if slices.Equal(stamps, r.stamps) {
		return false, nil
	}
	value, err := r.read()
	if err != nil {
		return false, err
	}
	r.value, r.stamps = value, stamps
	return true, nil
}
