package auth

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

// ShownName is an identity as those see it who may look at watches: the user's name, where we know
// it. What a service account's token says of its owner is true, because kube-apiserver has accepted
// the token. Other tokens say nothing that we can read.
func (id Identity) ShownName() string {
	switch {
	case id.User != nil:
		return id.User.Name
	case id.Kind == KindToken:
		if name, ok := TokenSubject(id.Token); ok {
			return name
		}
	}
	return "(" + id.Kind.String() + ")"
}

// TokenSubject returns the user that a service account's token is for: its subject (RFC 7519,
// section 4.1.2). The subject of another token is not always a user's name.
func TokenSubject(token string) (name string, ok bool) {
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
