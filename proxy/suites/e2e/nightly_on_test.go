//go:build nightly

package e2e_test

// nightly says that the tests of make nightly are there too.
const nightly = true
