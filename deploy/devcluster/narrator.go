package main

import (
	"fmt"
	"io"
	"time"
)

// Narrator tells the user what happens, with the seconds since it began.
type Narrator struct {
	w     io.Writer
	start time.Time
}

// NewNarrator returns a Narrator that begins now.
func NewNarrator(w io.Writer) Narrator { return Narrator{w: w, start: time.Now()} }

// Line writes one line.
func (n Narrator) Line(format string, args ...any) {
	fmt.Fprintf(n.w, "%7.1fs  %s\n", time.Since(n.start).Seconds(), fmt.Sprintf(format, args...))
}
