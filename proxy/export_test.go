package proxy

import "time"

// SetHeaderTimeout changes the time that clients have for a request's head. Call it before Run.
func (s *Server) SetHeaderTimeout(d time.Duration) { s.front.ReadTimeout = d }

var (
	SelfSigned     = selfSigned
	NewCertificate = newCertificate
)

// Recheck makes the next handshake look at the certificate's files again.
func (c *certificate) Recheck() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.checked = time.Time{}
}

// Get is what a handshake gets.
func (c *certificate) Get() []byte {
	pair, err := c.get(nil)
	if err != nil {
		return nil
	}
	return pair.Certificate[0]
}
