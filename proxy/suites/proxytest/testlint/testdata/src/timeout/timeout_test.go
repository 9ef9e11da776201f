package timeout

import (
	"testing"
	"testing/synctest"
)

func TestTimeout(t *testing.T) {
	t.Log("/pods?watch=1&timeoutSeconds=5")  // want `a watch that ends by the clock`
	t.Log("/pods?timeoutSeconds=10&watch=1") // want `a watch that ends by the clock`
	t.Log("/pods?watch=1&timeoutSeconds=300")
	t.Log("/pods?watch=1&timeoutSeconds=")
	t.Log("/pods?watch=1&timeoutSeconds=5") //testlint:allow timeout the end of the watch is tested
	synctest.Test(t, func(t *testing.T) {
		t.Log("/pods?watch=1&timeoutSeconds=5")
	})
}
