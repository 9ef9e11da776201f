package diagnose

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// How the pages of the admin port read queries and answer.

// serverName is the Server header of each page. top and explain know another server by its absence.
const serverName = "watchfan"

// Write answers with body. Nothing has been written to w before, so a panic up to here can still be
// answered.
func Write(w http.ResponseWriter, code int, mediaType string, body []byte) {
	h := w.Header()
	h.Set("Content-Type", mediaType)
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Server", serverName)
	w.WriteHeader(code)
	_, _ = w.Write(body) // fails only if the client has left
}

func WriteText(w http.ResponseWriter, code int, text string) {
	Write(w, code, "text/plain; charset=utf-8", []byte(text))
}

// respond answers with v as JSON, or with what text writes.
func respond(w http.ResponseWriter, asJSON bool, v any, text func(io.Writer)) {
	var body bytes.Buffer
	if !asJSON {
		text(&body)
		WriteText(w, http.StatusOK, body.String())
		return
	}
	if err := json.NewEncoder(&body).Encode(v); err != nil {
		panic("encode: " + err.Error()) // v holds strings, finite numbers and times
	}
	Write(w, http.StatusOK, "application/json", body.Bytes())
}

// page answers with what state returns, which is never cached. It answers JSON for ?format=json and to
// clients that accept application/json, and text to all others. The only parameter is format.
func page[T interface{ writeText(io.Writer) }](w http.ResponseWriter, r *http.Request, state func() T) {
	query, err := parameters(r, []string{"format"})
	asJSON := acceptsJSON(r)
	if err == nil && len(query) > 0 {
		if asJSON, err = parseFormat(query[0].value); err != nil {
			err = fmt.Errorf("format=%.50q: %w", query[0].value, err)
		}
	}
	if err != nil {
		WriteText(w, http.StatusBadRequest, err.Error()+"\n")
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	answer := state()
	respond(w, asJSON, answer, answer.writeText)
}

// NamedPage answers with names of clients and objects only if names is true.
type NamedPage func(w http.ResponseWriter, r *http.Request, names bool)

func named[T interface{ writeText(io.Writer) }](state func(names bool) T) NamedPage {
	return func(w http.ResponseWriter, r *http.Request, names bool) { page(w, r, func() T { return state(names) }) }
}

// onlyReads reports whether r is a GET or HEAD. Other requests are answered with refusal.
func onlyReads(w http.ResponseWriter, r *http.Request, refusal string) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", "GET, HEAD")
	WriteText(w, http.StatusMethodNotAllowed, refusal+"\n")
	return false
}

type parameter struct{ key, value string }

// parameters returns the query's parameters, sorted. Each must be one of known, and given once.
func parameters(r *http.Request, known []string) (found []parameter, err error) {
	query, err := url.ParseQuery(r.URL.RawQuery)
	if err != nil {
		return nil, err // it quotes a few bytes at most
	}
	for _, key := range slices.Sorted(maps.Keys(query)) {
		if !slices.Contains(known, key) {
			return nil, fmt.Errorf("parameter %.50q is unknown: give any of %s", key, strings.Join(known, ", "))
		}
		if len(query[key]) > 1 {
			return nil, fmt.Errorf("%s is given twice", key)
		}
		found = append(found, parameter{key, query.Get(key)})
	}
	return found, nil
}

// acceptsJSON reports whether the client asks for JSON. Programs do. Browsers and curl do not.
func acceptsJSON(r *http.Request) bool {
	return strings.Contains(r.Header.Get("Accept"), "application/json")
}

// parseFormat reports whether the value of the parameter format asks for JSON.
func parseFormat(value string) (asJSON bool, err error) {
	return value == "json", oneOf(value, []string{"json", "text"})
}

func oneOf(value string, known []string) error {
	if slices.Contains(known, value) {
		return nil
	}
	return fmt.Errorf("give one of %s", strings.Join(known, ", "))
}
