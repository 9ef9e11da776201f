package request

import "strings"

const (
	// maxShown is the most that is shown of a client's user agent, of its name and of each selector, in
	// bytes.
	maxShown = 256
	// maxShownError is the same of an error.
	maxShownError = 16 << 10
)

// Shown returns s as one line that is safe for a terminal, of at most maxShown bytes.
func Shown(s string) string { return safe(cut(s, maxShown), "") }

// ShownError returns an error, which may have a server's words, as lines that are safe for a terminal, of at
// most maxShownError bytes.
func ShownError(err error) string { return ShownLines(cut(err.Error(), maxShownError)) }

func cut(s string, most int) string {
	if len(s) > most {
		s = s[:most-len("…")] + "…"
	}
	return s
}

// ShownLines returns s as lines, with tabs, that are safe for a terminal.
func ShownLines(s string) string { return safe(s, "\n\t") }

// safe replaces what is not safe for a terminal, but for some characters.
func safe(s, keep string) string {
	return strings.Map(func(c rune) rune {
		if unsafeForTerminal(c) && !strings.ContainsRune(keep, c) {
			return '\ufffd'
		}
		return c
	}, strings.ToValidUTF8(s, "\ufffd"))
}

// unsafeForTerminal reports whether c is a control character, ends a line, or changes the direction
// of text.
func unsafeForTerminal(c rune) bool {
	return c < ' ' || c >= 0x7f && c < 0xa0 || c >= 0x2028 && c <= 0x202e || c >= 0x2066 && c <= 0x2069
}
