package exchange

import (
	"slices"
	"strings"
)

// Field is one line of a head. Names are compared without regard to case.
type Field struct{ Name, Value string }

// Is reports whether the field's name is name.
func (f Field) Is(name string) bool { return SameName(f.Name, name) }

// HasPrefix reports whether the field's name begins with prefix.
func (f Field) HasPrefix(prefix string) bool { return NameHasPrefix(f.Name, prefix) }

// SameName reports whether two field names are the same, ignoring case.
func SameName(a, b string) bool { return len(a) == len(b) && strings.EqualFold(a, b) }

// NameHasPrefix reports whether a field's name begins with prefix.
func NameHasPrefix(name, prefix string) bool {
	return len(name) >= len(prefix) && SameName(name[:len(prefix)], prefix)
}

// Header is the fields of a head, in their order. nil is an empty header.
type Header []Field

// First returns the value of the first field called name, as [net/http.Header.Get] does, and
// whether there is one.
func (h Header) First(name string) (value string, ok bool) {
	for i := range h {
		if h[i].Is(name) {
			return h[i].Value, true
		}
	}
	return "", false
}

// Get is First without the second result.
func (h Header) Get(name string) string {
	value, _ := h.First(name)
	return value
}

// Has reports whether there is a field called name.
func (h Header) Has(name string) bool {
	_, ok := h.First(name)
	return ok
}

// All returns the values of the fields called name.
func (h Header) All(name string) (values []string) {
	for i := range h {
		if h[i].Is(name) {
			values = append(values, h[i].Value)
		}
	}
	return values
}

// Add appends a field.
func (h *Header) Add(name, value string) { *h = append(*h, Field{name, value}) }

// Set makes value the only value of name.
func (h *Header) Set(name, value string) {
	called := func(f Field) bool { return f.Is(name) }
	first := slices.IndexFunc(*h, called)
	if first < 0 {
		h.Add(name, value)
		return
	}
	(*h)[first].Value = value
	others := slices.DeleteFunc((*h)[first+1:], called)
	*h = (*h)[:first+1+len(others)]
}
