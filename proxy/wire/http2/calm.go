package http2

import "golang.org/x/time/rate"

// calm bounds what a client may make the proxy do for nothing. The reading goroutine owns it.
//
//   - Frames that ask for nothing: PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA, RST_STREAM,
//     and frames of unknown types. A client may send more WINDOW_UPDATEs the more it is sent.
//   - Crumbs: DATA of a few bytes. A client may write its body so, but not for ever.
//   - Requests that end before they have been answered: because the client resets them (Rapid
//     Reset, CVE-2023-44487), because it makes the proxy reset them (MadeYouReset, CVE-2025-8671),
//     or because there are too many.
type calm struct{ frames, crumbs, wasted *rate.Limiter }

const (
	framesAtOnce  = 2000
	framesPerSec  = 200
	bytesPerFrame = 128       // sent to the client, for one more frame
	ownFrame      = 64        // bytes of a DATA frame that allows two more: for its stream and the connection
	mostCredit    = 128 << 20 // bytes sent for which there may be frames
	crumb         = 64        // a DATA frame of the client with fewer bytes
	crumbsAtOnce  = 20_000
	crumbsPerSec  = 2000
	wastedAtOnce  = 500
	wastedPerSec  = 50
)

func newCalm(streams int) calm {
	return calm{
		frames: rate.NewLimiter(framesPerSec, framesAtOnce),
		crumbs: rate.NewLimiter(crumbsPerSec, crumbsAtOnce),
		wasted: rate.NewLimiter(wastedPerSec, max(wastedAtOnce, 2*streams)),
	}
}

// spend counts one of what is bounded. It returns errCalm beyond the bound.
func (c *conn) spend(of *rate.Limiter) error {
	if !of.AllowN(c.reader.now.Time(), 1) {
		return errCalm
	}
	return nil
}
