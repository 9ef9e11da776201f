// Package files has what files contain, and reads them again when they change. It knows nothing else of
// the proxy.
package files
