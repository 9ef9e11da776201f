package elapsed

import (
	"testing"
	"testing/synctest"
	"time"
)

type result struct{ took time.Duration }

func TestElapsed(t *testing.T) {
	began := time.Now()
	if time.Since(began) > time.Second { // want `elapsed time in a condition`
		t.Error("slow")
	}
	took := time.Now().Sub(began)
	t.Log(took)
	seconds := took.Seconds()
	if seconds > 1 { // want `elapsed time in a condition`
		t.Error("slow")
	}
	r := result{took: time.Until(began)}
	if r.took < 0 { // want `elapsed time in a condition`
		t.Error("early")
	}
	if began.Equal(time.Now()) || time.Duration(len(t.Name())) < time.Second {
		t.Error("a comparison of something else")
	}
	switch began := any(began).(type) {
	case time.Time:
		t.Log(began)
	}
	synctest.Test(t, func(t *testing.T) {
		if began := time.Now(); time.Since(began) != 0 {
			t.Error("slow")
		}
	})
}
