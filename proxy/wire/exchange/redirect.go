package exchange

import "net/http"

// NoRedirect is the CheckRedirect of an http.Client that follows no redirection: whoever answers in a server's
// place chooses no other address.
func NoRedirect(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
