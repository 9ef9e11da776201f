package steady

import "testing"

// A goroutine that ends late is no leak, and one that stays is.
func TestLeaks(t *testing.T) {
	end := make(chan struct{})
	go func() { <-end }()
	if err := leaks(0, nil); err == nil {
		t.Error("a goroutine that stays is no leak")
	}
	close(end)
	if err := leaks(Patience, nil); err != nil {
		t.Error(err)
	}
}
