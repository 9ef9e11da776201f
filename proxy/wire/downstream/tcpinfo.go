package downstream

import (
	"net"
	"time"
)

// TCPInfo is the kernel's state of a client's connection (tcp(7), TCP_INFO and SIOCOUTQ). The
// client is the peer that ends the connection; it may be a load balancer.
type TCPInfo struct {
	// QueuedBytes are in the socket and not acknowledged. UnsentBytes are those of them that have
	// not been sent.
	QueuedBytes uint32 `json:"queuedBytes"`
	UnsentBytes uint32 `json:"unsentBytes"`
	// UnackedSegments have been sent and not acknowledged.
	UnackedSegments uint32 `json:"unackedSegments"`
	// WindowBytes is the client's last advertised window, counted from the last byte that it has
	// acknowledged. Linux before 5.4 does not report it, and it is 0 there.
	WindowBytes uint32 `json:"windowBytes"`
	// SegmentBytes is the largest size of a segment.
	SegmentBytes uint32 `json:"segmentBytes"`
	// Recovering: segments are assumed lost and are sent again. Timeouts is the number of
	// retransmissions in a row without an answer, and Probes the number of window probes without an
	// answer.
	Recovering bool   `json:"recovering"`
	Timeouts   uint8  `json:"timeouts"`
	Probes     uint8  `json:"probes"`
	Lost       uint32 `json:"lost"`
	// SentSegments and ResentSegments count since the connection began.
	SentSegments   uint32 `json:"sentSegments"`
	ResentSegments uint32 `json:"resentSegments"`
	// SinceSent is the time since data was last sent, SinceAck the time since the last
	// acknowledgement. RTT is the smoothed round-trip time.
	SinceSent Seconds `json:"sinceSentSeconds"`
	SinceAck  Seconds `json:"sinceAckSeconds"`
	RTT       Seconds `json:"rttSeconds"`
	// Busy is how long, since the connection began, data was in flight or waiting. WindowLimited is
	// the part of it spent waiting for the client's window, BufferLimited for room in the proxy's
	// own buffer.
	Busy          Seconds `json:"busySeconds"`
	WindowLimited Seconds `json:"windowLimitedSeconds"`
	BufferLimited Seconds `json:"bufferLimitedSeconds"`
}

// Seconds is a duration; in JSON it is a number of seconds.
type Seconds float64

func InSeconds(d time.Duration) Seconds { return Seconds(d.Seconds()) }

func (s Seconds) Duration() time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

// TCPConn returns the TCP connection below a client's connection as the listener accepted it.
func TCPConn(c net.Conn) *net.TCPConn {
	if a := arrivingOf(c); a != nil {
		return a.TCPConn
	}
	return c.(*net.TCPConn)
}

// Unanswered reports whether the client's side is silent although it must acknowledge at once.
func (t *TCPInfo) Unanswered() bool {
	return t.Probes >= 2 || t.UnackedSegments > 0 && t.Timeouts > 0 && t.SinceAck > t.SinceSent+t.RTT
}

// Closed reports whether the client's window has no room for the next segment. Then only window
// probes are sent.
func (t *TCPInfo) Closed() bool {
	return t.QueuedBytes > 0 && t.WindowBytes == 0 || t.UnsentBytes > 0 && t.WindowBytes < t.QueuedBytes-t.UnsentBytes+t.SegmentBytes
}

// Resting reports whether nothing has been sent for longer than the pause of a sender that may
// send.
func (t *TCPInfo) Resting() bool { return t.SinceSent > 0.2+2*t.RTT }
