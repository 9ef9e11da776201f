// Package server starts and stops the servers that are measured, on loopback: a dev cluster, watchfan
// in front of it, and the floor, which only writes. A stage is the servers of one peer with their
// writer. A child has one goroutine, which waits for its end.
package server
