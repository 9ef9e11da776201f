//go:build !nightly

package e2e_test

const nightly = false
