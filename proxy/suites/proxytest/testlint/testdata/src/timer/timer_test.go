package timer

import (
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"
)

func TestOutside(t *testing.T) {
	time.Sleep(time.Second) // want `time.Sleep outside a bubble`
	select {
	case <-time.After(time.Second): // want `time.After outside a bubble`
	default:
	}
	wait := time.Sleep // want `time.Sleep outside a bubble`
	wait(time.Second)
	time.Sleep(time.Second) //testlint:allow timer a reason is given
	//testlint:allow timer a reason is given
	time.Sleep(time.Second)

	time.Sleep(time.Second) //testlint:allow timer // want `time.Sleep outside a bubble`

	time.Sleep(time.Second) //testlint:allow elapsed of another rule // want `time.Sleep outside a bubble`
}

// Whatever this function does is in order.
//
//testlint:allow timer a reason is given
func pause() { time.Sleep(time.Second) }

func TestInside(t *testing.T) {
	pause()
	synctest.Test(t, func(t *testing.T) {
		time.Sleep(time.Second)
		go func() { time.Sleep(time.Second) }()
		inBubbles()
		anywhere()
		(&timer{}).inBubbles()
	})
	anywhere()
}

func inBubbles() { deeper() }

func deeper() { time.Sleep(time.Second) }

func anywhere() { time.Sleep(time.Second) } // want `time.Sleep outside a bubble`

func nobodyUses() { time.Sleep(time.Second) } // want `time.Sleep outside a bubble`

type timer struct{ then func() }

func (*timer) inBubbles() { time.Sleep(time.Second) }

// Functions go into bubbles by way of names, parameters, variables and fields.
func TestWays(t *testing.T) {
	synctest.Test(t, named)
	inBubble(t, func() { time.Sleep(time.Second) })
	outside(func() { time.Sleep(time.Second) }) // want `time.Sleep outside a bubble`
	inVariable := func(t *testing.T) { time.Sleep(time.Second) }
	synctest.Test(t, inVariable)
	used := func() { time.Sleep(time.Second) } // want `time.Sleep outside a bubble`
	used()
	for _, c := range []struct {
		name     string
		in, both func(*testing.T)
	}{
		{"by place", func(*testing.T) { time.Sleep(time.Second) }, func(*testing.T) { time.Sleep(time.Second) }},                // want `time.Sleep outside a bubble`
		{name: "by name", in: func(*testing.T) { time.Sleep(time.Second) }, both: func(*testing.T) { time.Sleep(time.Second) }}, // want `time.Sleep outside a bubble`
		{in: nil},
	} {
		if c.in != nil {
			synctest.Test(t, c.in)
		}
		synctest.Test(t, c.both)
		t.Run(c.name, c.both)
	}
	x := &timer{}
	x.then = func() { time.Sleep(time.Second) }
	synctest.Test(t, func(*testing.T) { x.then() })
}

var drawn = rand.Int()

func named(t *testing.T) { time.Sleep(time.Second) }

func inBubble(t *testing.T, f func()) {
	synctest.Test(t, func(*testing.T) { f() })
}

func outside(f func()) { f() }
