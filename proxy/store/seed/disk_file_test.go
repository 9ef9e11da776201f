package seed

import (
	"io"
	"testing"
)

// A file that could not be written does not take the place of the one before.
func TestPublish(t *testing.T) {
	d := &Disk{dir: t.TempDir(), key: func() ([]byte, error) { return []byte("private"), nil }}
	create := func(text string) *DiskFile {
		file, err := d.Create("v1/pods", "cluster")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := file.WriteString(text); err != nil {
			t.Fatal(err)
		}
		return file
	}
	before := create("before")
	if err := before.Publish(); err != nil {
		t.Fatal(err)
	}
	defer before.Close()
	after := create("after")
	if err := after.chunks.file.Close(); err != nil {
		t.Fatal(err)
	}
	if err := after.Publish(); err == nil {
		t.Error("a file that is closed was published")
	}
	r, err := d.Open("v1/pods", "cluster")
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || string(got) != "before" {
		t.Errorf("got %q and %v, want what was published", got, err)
	}
}
