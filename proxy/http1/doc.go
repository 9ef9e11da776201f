// Package http1 is HTTP/1.1 and HTTP/1.0 for clients.
package http1
