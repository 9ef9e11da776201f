package request

import (
	"encoding/base64"
	"encoding/json"
	"path"
	"strings"
)

// Page is the start of a page of a list, as a continue token describes it. kube-apiserver accepts
// our tokens, and we accept its tokens (k8s.io/apiserver/pkg/storage/continue.go).
type Page struct {
	ResourceVersion uint64
	After           string // the last key of the page before, within the request's collection
}

// pageToken is a continue token before the base64 encoding.
type pageToken struct {
	APIVersion      string `json:"v"`
	ResourceVersion int64  `json:"rv"`
	StartKey        string `json:"start"`
}

const (
	pageTokenVersion = "meta.k8s.io/v1"
	// behindKey, appended to a key, makes the next greater key.
	behindKey   = "\x00"
	maxTokenLen = 4 << 10 // names and namespaces have at most 253 bytes
)

func (p Page) String() string {
	token, err := json.Marshal(pageToken{pageTokenVersion, int64(p.ResourceVersion), "/" + p.After + behindKey})
	if err != nil {
		panic("encode continue token: " + err.Error()) // it holds a number and strings only
	}
	return base64.RawURLEncoding.EncodeToString(token)
}

// parsePage parses a continue token. It returns false for tokens that kube-apiserver would refuse,
// and for tokens that neither kube-apiserver nor watchfan creates. It also returns false for tokens
// with resourceVersion -1, which ask for the current state.
func parsePage(token string) (Page, bool) {
	if len(token) > maxTokenLen {
		return Page{}, false
	}
	raw, err := base64.RawURLEncoding.DecodeString(token)
	if err != nil {
		return Page{}, false
	}
	var t pageToken
	if json.Unmarshal(raw, &t) != nil || t.APIVersion != pageTokenVersion || t.ResourceVersion <= 0 {
		return Page{}, false
	}
	start := "/" + strings.TrimPrefix(t.StartKey, "/")
	if path.Clean(start) != start {
		return Page{}, false
	}
	after, ok := strings.CutSuffix(start[1:], behindKey)
	if !ok || after == "" || strings.Contains(after, behindKey) {
		return Page{}, false
	}
	return Page{uint64(t.ResourceVersion), after}, true
}
