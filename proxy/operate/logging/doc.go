// Package logging makes the log of the program, and never lets anybody wait for who reads it.
package logging
