package downstream

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// ReadTCPInfo reads the kernel's state of a connection with two system calls, which do not wait.
func ReadTCPInfo(c *net.TCPConn) (*TCPInfo, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var info *unix.TCPInfo
	var queued int
	if err := control(raw, func(fd uintptr) (err error) {
		if info, err = unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO); err == nil {
			queued, err = unix.IoctlGetInt(int(fd), unix.SIOCOUTQ)
		}
		return err
	}); err != nil {
		return nil, err
	}
	ms := func(n uint32) Seconds { return InSeconds(time.Duration(n) * time.Millisecond) }
	us := func(n uint64) Seconds { return InSeconds(time.Duration(n) * time.Microsecond) }
	return &TCPInfo{
		QueuedBytes:     uint32(queued),
		UnsentBytes:     min(info.Notsent_bytes, uint32(queued)), // info was read before queued
		UnackedSegments: info.Unacked,
		WindowBytes:     info.Snd_wnd,
		SegmentBytes:    info.Snd_mss,
		Recovering:      info.Ca_state >= tcpCARecovery,
		Timeouts:        info.Retransmits,
		Probes:          info.Probes,
		Lost:            info.Lost,
		SentSegments:    info.Data_segs_out,
		ResentSegments:  info.Total_retrans,
		SinceSent:       ms(info.Last_data_sent),
		SinceAck:        ms(info.Last_ack_recv),
		RTT:             us(uint64(info.Rtt)),
		Busy:            us(info.Busy_time),
		WindowLimited:   us(info.Rwnd_limited),
		BufferLimited:   us(info.Sndbuf_limited),
	}, nil
}

// tcpCARecovery is the lowest congestion state in which segments are sent again
// (include/uapi/linux/tcp.h, TCP_CA_Recovery).
const tcpCARecovery = 3

// HasLeft reports whether the client has closed the connection, or its sending side.
func HasLeft(c *net.TCPConn) bool {
	raw, err := c.SyscallConn()
	if err != nil {
		return true
	}
	left := false
	err = raw.Control(func(fd uintptr) {
		info, err := unix.GetsockoptTCPInfo(int(fd), unix.IPPROTO_TCP, unix.TCP_INFO)
		left = err == nil && info.State != unix.BPF_TCP_ESTABLISHED
	})
	return err != nil || left
}
