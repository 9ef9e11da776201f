package auth

import (
	"log/slog"
	"os"
	"slices"
	"sync"
	"time"
)

// reloadInterval is how often, at most, it is looked whether files have changed.
const reloadInterval = 10 * time.Second

// Reloaded is what files hold, read again when they change. Files that cannot be read, for example
// because only one of two has been replaced yet, leave the old value in use. Its methods may be
// called from any goroutine.
type Reloaded[T any] struct {
	What  string // for the log
	Files []string
	Read  func() (T, error)
	Log   *slog.Logger

	Mu      sync.Mutex
	value   T
	stamps  []time.Time // modification times of what value was read from; nil before that
	Checked time.Time
}

// Load reads the files for the first time, so that wrong ones are an error at the start.
func (r *Reloaded[T]) Load() error {
	r.Checked = time.Now()
	_, err := r.readLocked()
	return err
}

// Current returns what the files hold, or held at most reloadInterval ago.
func (r *Reloaded[T]) Current() T {
	r.Mu.Lock()
	defer r.Mu.Unlock()
	if time.Since(r.Checked) >= reloadInterval {
		r.Checked = time.Now()
		changed, err := r.readLocked()
		switch {
		case err != nil:
			r.Log.Warn("Reading a changed file failed", "file", r.Files[0], "holds", r.What, "err", err)
		case changed:
			r.Log.Info("Reloaded a changed file", "file", r.Files[0], "holds", r.What)
		}
	}
	return r.value
}

// readLocked reads the files if they have changed.
func (r *Reloaded[T]) readLocked() (changed bool, err error) {
	stamps := make([]time.Time, len(r.Files))
	for i, name := range r.Files {
		info, err := os.Stat(name)
		if err != nil {
			return false, err
		}
		stamps[i] = info.ModTime()
	}
	if slices.Equal(stamps, r.stamps) {
		return false, nil
	}
	value, err := r.Read()
	if err != nil {
		return false, err
	}
	r.value, r.stamps = value, stamps
	return true, nil
}
