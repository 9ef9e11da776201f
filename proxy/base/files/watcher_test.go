package files

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestWatcher: a file is read again when it is another one, or has another size or time. Some
// programs that replace files keep their times, and some file systems have one time for all files.
func TestWatcher(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		file := filepath.Join(t.TempDir(), "file")
		epoch := time.Unix(1, 0)
		write := func(name, content string, at time.Time) {
			t.Helper()
			if err := errors.Join(os.WriteFile(name, []byte(content), 0o600), os.Chtimes(name, at, at)); err != nil {
				t.Fatal(err)
			}
		}
		write(file, "one", epoch)
		reads := 0
		w, err := Watch("text", func() (string, error) {
			reads++
			content, err := os.ReadFile(file)
			if string(content) == "broken" {
				err = errors.New("broken")
			}
			return string(content), err
		}, slog.New(slog.DiscardHandler), file)
		if err != nil {
			t.Fatal(err)
		}
		want := func(content string, wantReads int) {
			t.Helper()
			time.Sleep(statInterval)
			if got := w.Current(); got != content || reads != wantReads {
				t.Errorf("got %q after %d reads, want %q after %d", got, reads, content, wantReads)
			}
		}
		want("one", 1)
		write(file+".new", "two", epoch)
		if err := os.Rename(file+".new", file); err != nil {
			t.Fatal(err)
		}
		want("two", 2)
		write(file, "three", epoch)
		want("three", 3)
		write(file, "eight", epoch.Add(time.Second))
		want("eight", 4)
		if err := os.Remove(file); err != nil {
			t.Fatal(err)
		}
		want("eight", 4)
		write(file, "broken", epoch)
		want("eight", 5)
		write(file, "nine", epoch)
		want("nine", 6)
		want("nine", 6)
	})
}

// TestHangingVolume: while one call waits for the files, the others have the old value.
func TestHangingVolume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		value, hang := "one", make(chan struct{})
		w, err := Watch("text", func() (string, error) {
			if value == "two" {
				<-hang
			}
			return value, nil
		}, slog.New(slog.DiscardHandler), os.DevNull)
		if err != nil {
			t.Fatal(err)
		}
		value = "two"
		w.stamps = nil // the file has changed
		time.Sleep(statInterval)
		got := make(chan string)
		go func() { got <- w.Current() }()
		synctest.Wait()
		if now := w.Current(); now != "one" {
			t.Errorf("got %q meanwhile", now)
		}
		close(hang)
		if now := <-got; now != "two" {
			t.Errorf("got %q in the end", now)
		}
	})
}
