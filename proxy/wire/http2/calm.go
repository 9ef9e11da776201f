package http2

import "github.com/watchfan/watchfan/fanout"

// calm bounds what a client may make the proxy do for nothing. The reading goroutine owns it.
//
//   - Frames that ask for nothing: PING, SETTINGS, PRIORITY, WINDOW_UPDATE, empty DATA, RST_STREAM,
//     and frames of unknown types. A client may send more WINDOW_UPDATEs the more it is sent.
//   - Crumbs: DATA of a few bytes. A client may write its body so, but not for ever.
//   - Requests that end before they have been answered: because the client resets them (Rapid
//     Reset, CVE-2023-44487), because it makes the proxy reset them (MadeYouReset, CVE-2025-8671),
//     or because there are too many.
type calm struct{ frames, crumbs, wasted budget }

const (
	framesAtOnce   = 2000
	framesPerSec   = 200
	bytesPerFrame  = 128 // sent to the client, for one more frame
	ownFrame       = 64  // bytes of a DATA frame that allows two more: for its stream and the connection
	crumb          = 64  // a DATA frame of the client with fewer bytes
	crumbsAtOnce   = 20_000
	crumbsPerSec   = 2000
	wastedAtOnce   = 500
	wastedPerSec   = 50
	mostTokensHeld = 1 << 20
)

func (c *calm) init(streams int) {
	c.frames = budget{most: framesAtOnce, perSecond: framesPerSec}
	c.crumbs = budget{most: crumbsAtOnce, perSecond: crumbsPerSec}
	c.wasted = budget{most: max(wastedAtOnce, 2*float64(streams)), perSecond: wastedPerSec}
	c.frames.tokens, c.crumbs.tokens, c.wasted.tokens = c.frames.most, c.crumbs.most, c.wasted.most
}

// budget is a token bucket.
type budget struct {
	most, perSecond float64
	tokens          float64
	at              fanout.MonotonicTime
}

// spend takes one token. It returns errCalm if there was none. credit is added first, beyond the
// bucket's size if it is large.
func (b *budget) spend(credit float64, now fanout.MonotonicTime) error {
	if b.tokens < b.most || credit > 0 {
		if b.at != 0 && b.tokens < b.most {
			b.tokens = min(b.most, b.tokens+float64(now-b.at)/1e9*b.perSecond)
		}
		b.at = now
		b.tokens = min(mostTokensHeld, b.tokens+credit)
	}
	if b.tokens < 1 {
		return errCalm
	}
	b.tokens--
	return nil
}
