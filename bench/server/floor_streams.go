//go:build linux

package server

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
)

// floorProtocols are the protocols of a floor. Lists come over HTTP/1.1, from clients that offer both.
var floorProtocols = []string{"http/1.1", "h2"}

// answerStreams begins an HTTP/2 connection, and answers its watches. Later frames of the client are
// not read: windows do not bind a floor, so its clients must give them back seldom.
func (s *floorServer) answerStreams(rw io.ReadWriter) error {
	var preface [len(http2.ClientPreface)]byte
	if _, err := io.ReadFull(rw, preface[:]); err != nil {
		return fmt.Errorf("read preface: %w", err)
	}
	if string(preface[:]) != http2.ClientPreface {
		return errors.New("no preface of HTTP/2")
	}
	var block bytes.Buffer
	encoder := hpack.NewEncoder(&block)
	framer := http2.NewFramer(rw, rw)
	if err := framer.WriteSettings(); err != nil {
		return err
	}
	for answered := 0; answered < s.streams; {
		frame, err := framer.ReadFrame()
		if err != nil {
			return fmt.Errorf("read frame: %w", err)
		}
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			err = framer.WriteSettingsAck()
		case *http2.HeadersFrame:
			answered++
			block.Reset()
			_ = encoder.WriteField(hpack.HeaderField{Name: ":status", Value: "200"}) // to memory
			err = framer.WriteHeaders(http2.HeadersFrameParam{StreamID: f.StreamID, BlockFragment: block.Bytes(), EndHeaders: true})
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// appendFrames appends the events of the current order, in chunks of size bytes, as DATA for each
// stream of an HTTP/2 connection: 1, 3, 5 ….
func (s *floorServer) appendFrames(dst []byte, size int) []byte {
	for i := range s.streams {
		for at := 0; at < len(s.batch); at += size {
			event := s.chunk.payload(s.batch[at : at+size])
			dst = binary.BigEndian.AppendUint32(dst, uint32(len(event))<<8|uint32(http2.FrameData))
			dst = binary.BigEndian.AppendUint32(append(dst, 0), uint32(2*i+1))
			dst = append(dst, event...)
		}
	}
	return dst
}

// payload returns the event in a chunk, without the chunk's own bytes.
func (c floorChunk) payload(chunk []byte) []byte {
	return chunk[bytes.IndexByte(c.bytes, '\n')+1 : len(chunk)-len("\r\n")]
}
