package main

import (
	"os"
	"testing"
)

// mainEnv makes this test binary behave as devcluster, so that the end-to-end
// test needs no other binary.
const mainEnv = "DEVCLUSTER_TEST_MAIN"

func TestMain(m *testing.M) {
	if os.Getenv(mainEnv) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}
