package auth

import (
	"crypto/sha256"
	"crypto/x509"
	"encoding/asn1"
	"encoding/hex"
	"slices"
	"strings"
	"unicode/utf8"

	"k8s.io/apimachinery/pkg/util/validation"
)

// UserInfo is a user as kube-apiserver knows one (k8s.io/apiserver pkg/authentication/user). In JSON it
// is one of authentication.k8s.io/v1.
type UserInfo struct {
	Name   string              `json:"username,omitempty"`
	UID    string              `json:"uid,omitempty"`
	Groups []string            `json:"groups,omitempty"`
	Extra  map[string][]string `json:"extra,omitempty"`
}

// Size returns the memory that the user's name, uid, groups and extra take, in bytes; 0 of nil.
func (u *UserInfo) Size() int {
	if u == nil {
		return 0
	}
	n := len(u.Name) + len(u.UID)
	for _, group := range u.Groups {
		n += len(group)
	}
	for key, values := range u.Extra {
		n += len(key)
		for _, value := range values {
			n += len(value)
		}
	}
	return n
}

// Names that kube-apiserver gives a meaning (k8s.io/apiserver pkg/authentication/user).
const (
	AnonymousUser        = "system:anonymous"
	groupAuthenticated   = "system:authenticated"
	groupUnauthenticated = "system:unauthenticated"
	groupNodes           = "system:nodes"
	nodePrefix           = "system:node:"
)

// Anonymous is the user of requests without a credential. It does not change.
var Anonymous = &UserInfo{Name: AnonymousUser, Groups: []string{groupUnauthenticated}}

// addAuthenticated adds the group of all authenticated users (k8s.io/apiserver
// pkg/authentication/group).
func (u *UserInfo) addAuthenticated() {
	if u.Name != AnonymousUser && !slices.Contains(u.Groups, groupAuthenticated) && !slices.Contains(u.Groups, groupUnauthenticated) {
		u.Groups = append(u.Groups, groupAuthenticated)
	}
}

// IsNode reports whether u is what kube-apiserver makes of a node's name in constrained impersonation
// (k8s.io/apiserver pkg/endpoints/filters/impersonation): of the groups of nodes and of authenticated
// users, and no other. The hash of its certificate is lost there, and nothing decides by it.
func (u *UserInfo) IsNode() bool {
	name, ok := strings.CutPrefix(u.Name, nodePrefix)
	ok = ok && u.UID == "" && len(validation.IsDNS1123Subdomain(name)) == 0
	for key := range u.Extra {
		ok = ok && key == credentialIDKey
	}
	return ok && len(u.Groups) == 2 &&
		slices.Contains(u.Groups, groupNodes) && slices.Contains(u.Groups, groupAuthenticated)
}

// expressible reports whether headers, and the JSON of an access review, can carry u unchanged. A
// value that begins or ends with white space would arrive as another user's.
func (u *UserInfo) expressible() bool {
	values := append([]string{u.Name, u.UID}, u.Groups...)
	for key, extra := range u.Extra {
		values = append(append(values, key), extra...)
	}
	for _, v := range values {
		if strings.Trim(v, " \t") != v || !utf8.ValidString(v) || strings.ContainsFunc(v, func(r rune) bool { return r < ' ' && r != '\t' || r == 0x7f }) {
			return false
		}
	}
	return u.Name != ""
}

// credentialIDKey is the key of an extra that holds the hash of the user's certificate.
const credentialIDKey = "authentication.kubernetes.io/credential-id"

// uidOID is the attribute of a certificate's subject that holds the user's uid (k8s.io/apimachinery
// pkg/apis/asn1).
var uidOID = asn1.ObjectIdentifier{1, 3, 6, 1, 4, 1, 57683, 2}

// certificateUser returns the user that a client certificate is issued to; nil if it names none
// (k8s.io/apiserver pkg/authentication/request/x509).
func certificateUser(c *x509.Certificate) *UserInfo {
	uid, ok := certificateUID(c)
	if c.Subject.CommonName == "" || !ok {
		return nil
	}
	hash := sha256.Sum256(c.Raw)
	user := &UserInfo{
		Name:   c.Subject.CommonName,
		UID:    uid,
		Groups: slices.Clone(c.Subject.Organization),
		Extra:  map[string][]string{credentialIDKey: {"X509SHA256=" + hex.EncodeToString(hash[:])}},
	}
	user.addAuthenticated()
	return user
}

// certificateUID returns the uid of a certificate's subject, "" if it has none. It reports false if
// there are several, or one that is empty or no string.
func certificateUID(c *x509.Certificate) (uid string, ok bool) {
	for _, name := range c.Subject.Names {
		if !name.Type.Equal(uidOID) {
			continue
		}
		value, isString := name.Value.(string)
		if !isString || value == "" || uid != "" {
			return "", false
		}
		uid = value
	}
	return uid, true
}
