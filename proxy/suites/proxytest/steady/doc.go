// Package steady has what makes a test give the same answer on any machine: waits for conditions, with
// one patience, and random numbers with a known seed. Only tests import it. It imports no package of
// watchfan, so that the tests of all may use it.
package steady
