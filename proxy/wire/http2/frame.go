package http2

import (
	"errors"
	"io"

	wire "golang.org/x/net/http2"

	"github.com/watchfan/watchfan/fanout"
)

// errPreface is the error of a connection that does not begin as RFC 9113, section 3.4, says.
var errPreface = wire.ConnectionError(wire.ErrCodeProtocol)

// errCalm ends the connection of a client that exceeds its budgets; see type calm.
var errCalm = wire.ConnectionError(wire.ErrCodeEnhanceYourCalm)

// codeOf returns the code of the GOAWAY with which err ends the connection. broken is false if the
// client, the network or the proxy has simply ended the connection.
func codeOf(err error) (code wire.ErrCode, broken bool) {
	var broke wire.ConnectionError
	switch {
	case errors.As(err, &broke):
		return wire.ErrCode(broke), true
	case errors.Is(err, wire.ErrFrameTooLarge):
		return wire.ErrCodeFrameSize, true
	case errors.Is(err, errSlowHead):
		return wire.ErrCodeEnhanceYourCalm, true
	}
	return wire.ErrCodeNo, false
}

// read reads and handles frames until the connection ends, and returns why.
func (c *conn) read() error {
	c.mu.Lock()
	c.setDeadlineLocked(fanout.MonotonicNow())
	c.unlock()
	if err := c.readPreface(); err != nil {
		return err
	}
	for {
		if err := c.reader.next(); err != nil {
			return err
		}
		head, err := c.framer.ReadFrameHeader()
		if err != nil {
			return err
		}
		frame, err := c.framer.ReadFrameForHeader(head)
		var bad wire.StreamError
		if errors.As(err, &bad) {
			err = c.badFrame(head.Type, bad)
		} else if err == nil {
			err = c.handle(frame)
		}
		if err != nil {
			return err
		}
	}
}

// readPreface reads the client's preface and its first frame, which is SETTINGS.
func (c *conn) readPreface() error {
	var preface [len(wire.ClientPreface)]byte
	if _, err := io.ReadFull(c.reader, preface[:]); err != nil {
		return err
	}
	if string(preface[:]) != wire.ClientPreface {
		return errPreface
	}
	frame, err := c.framer.ReadFrame()
	if err != nil {
		return err
	}
	settings, ok := frame.(*wire.SettingsFrame)
	if !ok || settings.IsAck() {
		return errPreface
	}
	return c.handle(frame)
}

// handle handles one frame. An error ends the connection.
func (c *conn) handle(frame wire.Frame) error {
	switch f := frame.(type) {
	case *wire.HeadersFrame:
		return c.readHead(f)
	case *wire.DataFrame:
		return c.readData(f)
	}
	c.mu.Lock()
	defer c.unlock()
	err := c.spendFrameLocked()
	if err == nil {
		err = c.handleLocked(frame)
	}
	c.reader.due = true
	return err
}

// spendFrameLocked counts a frame that asks for nothing.
func (c *conn) spendFrameLocked() error {
	if c.credit >= bytesPerFrame {
		c.credit -= bytesPerFrame
		return nil
	}
	return c.spend(c.calm.frames)
}

// spendWasted counts a request that ends before it has been answered.
func (c *conn) spendWasted() error { return c.spend(c.calm.wasted) }

// handleLocked handles a frame that is neither HEADERS nor DATA.
func (c *conn) handleLocked(frame wire.Frame) error {
	switch f := frame.(type) {
	case *wire.SettingsFrame:
		return c.handleSettingsLocked(f)
	case *wire.PingFrame:
		if !f.IsAck() {
			_ = c.framer.WritePing(true, f.Data)
			c.replies++
		} else if f.Data == goAwayPing {
			c.queued = append(c.queued, c.refuseNew)
		}
	case *wire.WindowUpdateFrame:
		return c.handleWindowLocked(f)
	case *wire.RSTStreamFrame:
		return c.handleResetLocked(f)
	case *wire.PriorityFrame:
		if f.StreamDep == f.StreamID {
			return c.refuseLocked(f.StreamID, wire.ErrCodeProtocol)
		}
	case *wire.PushPromiseFrame:
		return wire.ConnectionError(wire.ErrCodeProtocol) // clients do not push
	case *wire.GoAwayFrame:
		// The client opens no further streams and closes the connection itself.
	}
	return nil
}

// badFrame handles a frame that the framer rejects for its stream.
func (c *conn) badFrame(of wire.FrameType, bad wire.StreamError) error {
	c.mu.Lock()
	defer c.unlock()
	if err := c.spendFrameLocked(); err != nil {
		return err
	}
	if of == wire.FrameHeaders {
		return wire.ConnectionError(bad.Code) // without the header block, later ones cannot be decoded
	}
	err := c.refuseLocked(bad.StreamID, bad.Code)
	c.sendLocked()
	return err
}

// refuseLocked resets a stream because of something that the client has sent on it.
func (c *conn) refuseLocked(id uint32, code wire.ErrCode) error {
	if st := c.streams.find(id); st != nil {
		c.resetLocked(st, code)
	} else {
		c.sendResetLocked(id, code)
	}
	return c.spendWasted()
}

func (c *conn) handleSettingsLocked(f *wire.SettingsFrame) error {
	if f.IsAck() {
		return nil
	}
	initial := c.initial
	if err := f.ForeachSetting(func(s wire.Setting) error {
		if err := s.Valid(); err != nil {
			return err
		}
		switch s.ID {
		case wire.SettingInitialWindowSize:
			initial = int64(s.Val)
		case wire.SettingMaxFrameSize:
			c.frameSize = int(min(s.Val, maxFrame))
		case wire.SettingHeaderTableSize:
			c.encoder.SetMaxDynamicTableSizeLimit(min(s.Val, maxTable))
			c.encoder.SetMaxDynamicTableSize(min(s.Val, maxTable))
		}
		return nil
	}); err != nil {
		return err
	}
	if err := c.setInitialLocked(initial); err != nil {
		return err
	}
	_ = c.framer.WriteSettingsAck()
	c.replies++
	return nil
}

// setInitialLocked changes the window of new streams, and those of open streams by as much
// (RFC 9113, section 6.9.2). A window may become negative.
func (c *conn) setInitialLocked(initial int64) error {
	by := initial - c.initial
	if by == 0 {
		return nil
	}
	c.initial = initial
	for _, st := range c.streams {
		if st.window += by; st.window > maxWindow {
			return wire.ConnectionError(wire.ErrCodeFlowControl)
		}
		c.readyLocked(st)
	}
	c.wakeAllLocked()
	return nil
}

func (c *conn) handleWindowLocked(f *wire.WindowUpdateFrame) error {
	if f.StreamID == 0 {
		if c.window += int64(f.Increment); c.window > maxWindow {
			return wire.ConnectionError(wire.ErrCodeFlowControl)
		}
		c.wakeAllLocked()
		return nil
	}
	if c.idle(f.StreamID) {
		return wire.ConnectionError(wire.ErrCodeProtocol)
	}
	st := c.streams.find(f.StreamID)
	if st == nil {
		return nil // has just ended
	}
	if st.window += int64(f.Increment); st.window > maxWindow {
		return c.refuseLocked(f.StreamID, wire.ErrCodeFlowControl)
	}
	c.readyLocked(st)
	st.wake()
	return nil
}

func (c *conn) handleResetLocked(f *wire.RSTStreamFrame) error {
	if c.idle(f.StreamID) {
		return wire.ConnectionError(wire.ErrCodeProtocol)
	}
	st := c.streams.find(f.StreamID)
	if st == nil {
		return nil
	}
	c.past.note(f.StreamID, resetThere)
	answered := st.answered
	c.dropLocked(st)
	if answered {
		return nil
	}
	return c.spendWasted()
}

// idle reports whether the client has not opened the stream yet. Streams with even numbers are the
// server's, and it opens none.
func (c *conn) idle(id uint32) bool { return id > c.lastID || id%2 == 0 }
