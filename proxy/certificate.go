package proxy

import (
	"crypto/tls"
	"fmt"
	"log/slog"

	"github.com/watchfan/watchfan/proxy/auth"
)

// watchCertificate reads the serving certificate, and reads it again when it changes. A wrong one is an
// error at the start.
func watchCertificate(certFile, keyFile string, log *slog.Logger) (*auth.FileWatcher[*tls.Certificate], error) {
	read := func() (*tls.Certificate, error) {
		pair, err := tls.LoadX509KeyPair(certFile, keyFile)
		if err != nil {
			return nil, fmt.Errorf("serving certificate %s: %w", certFile, err)
		}
		return &pair, nil
	}
	return auth.WatchFiles("serving certificate", read, log, certFile, keyFile)
}
