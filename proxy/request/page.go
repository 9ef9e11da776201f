package request

import (
	"encoding/base64"
	"encoding/json"
	"path"
	"strings"
)

// Page is where a page of a list begins: what a continue token says. kube-apiserver reads our
// tokens as its own, and we read its (k8s.io/apiserver/pkg/storage/continue.go).
type Page struct {
	ResourceVersion uint64
	After           string // key, within the request's collection
}

// pageToken is a continue token before it is put into base64.
type pageToken struct {
	APIVersion      string `json:"v"`
	ResourceVersion int64  `json:"rv"`
	StartKey        string `json:"start"`
}

const (
	pageTokenVersion = "meta.k8s.io/v1"
	// behindKey makes the least key that is greater than another.
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

// parsePage reads a continue token. It reports false for those that kube-apiserver would refuse,
// for those that ask for whatever is there now, which have resourceVersion -1, and for those that
// neither of us makes.
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
