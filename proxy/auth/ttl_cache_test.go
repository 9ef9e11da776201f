package auth

import (
	"testing"
	"testing/synctest"
	"time"
)

// A late answer does not replace the answer to a later question.
func TestAnswersInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var known TTLCache[outcome]
		q, first := Question{1}, time.Now()
		time.Sleep(time.Second)
		known.Put(q, denied, time.Now(), answerTTL)
		known.Put(q, allowed, first, answerTTL)
		if v, ok := known.Get(q); !ok || v != denied {
			t.Errorf("%v, %v", v, ok)
		}
		time.Sleep(answerTTL)
		if _, ok := known.Get(q); ok {
			t.Error("still good")
		}
	})
}
