package http1

import (
	"errors"
	"os"
	"sync"

	"github.com/watchfan/watchfan/fanout"
	"github.com/watchfan/watchfan/proxy/wire/exchange"
	"github.com/watchfan/watchfan/proxy/wire/websocket"
)

// webSocket is a watch over a WebSocket. It owns its connection until it ends. It has a goroutine
// only while there is something to read: its client is read as far as it has sent, and then left to
// the poller.
type webSocket struct {
	messages
	gone func() // of the exchange.Stream

	reading  sync.Mutex
	receiver websocket.Receiver // guarded by reading
}

// receiveBuffers hold buffers for a client's frames. A client with nothing to say has none.
var receiveBuffers = sync.Pool{New: func() any { return new([4 << 10]byte) }}

// read reads the client until it has nothing left to say, or has left.
func (w *webSocket) read() {
	w.reading.Lock()
	defer w.reading.Unlock()
	buf := receiveBuffers.Get().(*[4 << 10]byte)
	defer receiveBuffers.Put(buf)
	for {
		n, err := w.Read(buf[:])
		if !w.receiveLocked(buf[:n]) {
			return
		}
		switch {
		case err == nil:
		case errors.Is(err, os.ErrDeadlineExceeded):
			w.ReadAgain(w.read)
			return
		default: // the client has left, or has closed its sending side
			w.answer([]byte(websocket.CloseNormal), true)
			w.gone()
			return
		}
	}
}

// receiveLocked answers bytes of the client. It reports whether the connection goes on.
func (w *webSocket) receiveLocked(p []byte) (goesOn bool) {
	answers, over := w.receiver.Receive(nil, p)
	if len(answers) > 0 {
		w.answer(answers, over)
	}
	if over {
		w.gone()
	}
	return !over
}

// begin writes the head, answers what the client has sent along with the handshake, and then hands
// over the sink. An error means that the head could not be written.
func (w *webSocket) begin(head, kept []byte, source exchange.Stream) error {
	w.reading.Lock() // the client's next bytes come behind kept
	defer w.reading.Unlock()
	if err := w.Begin(head, w.read); err != nil {
		return err
	}
	if w.receiveLocked(kept) {
		source.Begin(w)
	} else {
		w.End(fanout.Gone, false)
	}
	return nil
}
