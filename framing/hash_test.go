package framing_test

import (
	"strconv"
	"testing"

	"k8s.io/apimachinery/pkg/sharding"

	"github.com/watchfan/watchfan/framing"
)

// The hash is kube-apiserver's.
func TestHashOf(t *testing.T) {
	for _, value := range []string{"", "a", "default", "6b1d9f3c-5b0e-4a57-9d0e-0a5f9c1e7b42", "ä\x00\xff", "kube-system"} {
		want, err := strconv.ParseUint(sharding.HashField(value), 16, 64)
		if err != nil {
			t.Fatal(err)
		}
		if s, b := framing.HashOf(value), framing.HashOf([]byte(value)); s != want || b != want {
			t.Errorf("%q: got %x and %x, want %x", value, s, b, want)
		}
	}
}
