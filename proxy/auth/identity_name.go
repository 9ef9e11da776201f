package auth

import (
	"encoding/base64"
	"encoding/json"
	"strings"
)

// ShownName is the name of an identity on the pages about watches: the user's name, where the proxy
// knows it. A service account's token names its owner, and kube-apiserver has accepted the token,
// so the name is true. Other tokens are not read.
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

// TokenSubject returns the user of a service account's token: its subject (RFC 7519, section
// 4.1.2). The subject of other tokens is not always a user's name, so they have none here. The
// token is not checked.
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
