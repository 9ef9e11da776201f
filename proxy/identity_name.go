package proxy

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

// shownName is an identity as those see it who may look at watches: the user's name, where we know
// it. What a service account's token says of its owner is true, because kube-apiserver has accepted
// the token. Other tokens say nothing that we can read.
func (id identity) shownName() string {
	switch {
	case id.user != nil:
		return id.user.name
	case id.kind == kindToken:
		if name, ok := tokenSubject(id.token); ok {
			return name
		}
	}
	return "(" + id.kind.String() + ")"
}

// tokenSubject returns the user that a service account's token is for: its subject (RFC 7519,
// section 4.1.2). The subject of another token is not always a user's name.
func tokenSubject(token string) (name string, ok bool) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 || len(parts[1]) > 8<<10 {
		return "", false
	}
	payload, err := base64.RawURLEncoding.DecodeString(parts[1])
	if err != nil {
		return "", false
	}
	var claims struct {
		Subject string `json:"sub"`
	}
	if json.Unmarshal(payload, &claims) != nil {
		return "", false
	}
	if _, _, ok := serviceAccount(claims.Subject); !ok {
		return "", false
	}
	return claims.Subject, true
}
