//go:build linux

package load

import (
	"errors"
	"fmt"
	"strconv"
)

// A Rate is a number of writes per second; 0 is as fast as possible.
type Rate float64

const Unpaced = Rate(0)

func (r Rate) String() string {
	if r == Unpaced {
		return "max"
	}
	return strconv.FormatFloat(float64(r), 'g', -1, 64)
}

func ParseRate(s string) (Rate, error) {
	if s == Unpaced.String() {
		return Unpaced, nil
	}
	f, err := strconv.ParseFloat(s, 64)
	if err == nil && !(f > 0 && f <= 1e6) {
		err = errors.New("out of range")
	}
	if err != nil {
		return 0, fmt.Errorf("rate %q: want max or a number up to 1e6", s)
	}
	return Rate(f), nil
}
