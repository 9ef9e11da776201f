package downstream

import (
	"crypto/tls"
	"net"
	"time"
)

// TCPInfo is what the kernel knows of a client's connection (tcp(7), TCP_INFO and SIOCOUTQ). The
// client is whoever ends the connection, a load balancer maybe.
type TCPInfo struct {
	// QueuedBytes are in the socket and not acknowledged; UnsentBytes of them have not been sent
	// either.
	QueuedBytes uint32 `json:"queuedBytes"`
	UnsentBytes uint32 `json:"unsentBytes"`
	// UnackedSegments have been sent and not acknowledged.
	UnackedSegments uint32 `json:"unackedSegments"`
	// WindowBytes is what the client last said that it has room for, counted from the last byte
	// that it has acknowledged. Linux before 5.4 does not tell, which looks like 0.
	WindowBytes uint32 `json:"windowBytes"`
	// SegmentBytes is the most that one segment holds.
	SegmentBytes uint32 `json:"segmentBytes"`
	// Recovering: segments are taken for lost and are being sent again. Timeouts is how many times
	// in a row that was not answered, and Probes how many questions for room were not.
	Recovering bool   `json:"recovering"`
	Timeouts   uint8  `json:"timeouts"`
	Probes     uint8  `json:"probes"`
	Lost       uint32 `json:"lost"`
	// SentSegments and ResentSegments count since the connection began.
	SentSegments   uint32 `json:"sentSegments"`
	ResentSegments uint32 `json:"resentSegments"`
	// SinceSent and SinceAck are how long ago data was last sent, and anything acknowledged; RTT is
	// the smoothed time in between.
	SinceSent Seconds `json:"sinceSentSeconds"`
	SinceAck  Seconds `json:"sinceAckSeconds"`
	RTT       Seconds `json:"rttSeconds"`
	// Busy is for how long, since the connection began, data was on its way or waited; of that,
	// WindowLimited for the client's window and BufferLimited for room in our own buffer.
	Busy          Seconds `json:"busySeconds"`
	WindowLimited Seconds `json:"windowLimitedSeconds"`
	BufferLimited Seconds `json:"bufferLimitedSeconds"`
}

// Seconds is a duration, in JSON a number of seconds.
type Seconds float64

func InSeconds(d time.Duration) Seconds { return Seconds(d.Seconds()) }

func (s Seconds) Duration() time.Duration { return time.Duration(float64(s) * float64(time.Second)) }

// TCPConn returns the TCP connection under a client's connection as the listener accepted it.
func TCPConn(c net.Conn) *net.TCPConn {
	if t, ok := c.(*tls.Conn); ok {
		return t.NetConn().(*gatherConn).TCPConn // see Server.Listen
	}
	if a, ok := c.(*arrivingConn); ok {
		return a.TCPConn
	}
	return c.(*net.TCPConn)
}

// Unanswered reports whether the client's side has gone silent although it was sent something that
// it must answer at once.
func (t *TCPInfo) Unanswered() bool {
	return t.Probes >= 2 || t.UnackedSegments > 0 && t.Timeouts > 0 && t.SinceAck > t.SinceSent+t.RTT
}

// Closed reports whether the client has no room for the next segment; then nothing is sent but
// questions for room.
func (t *TCPInfo) Closed() bool {
	return t.QueuedBytes > 0 && t.WindowBytes == 0 || t.UnsentBytes > 0 && t.WindowBytes < t.QueuedBytes-t.UnsentBytes+t.SegmentBytes
}

// Resting reports whether nothing has been sent for longer than a sender that may send would pause.
func (t *TCPInfo) Resting() bool { return t.SinceSent > 0.2+2*t.RTT }
