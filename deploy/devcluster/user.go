package main

import (
	"bytes"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// User is someone kube-apiserver knows by a token.
type User struct {
	File   string // its token is in File.token
	Name   string
	Groups []string
}

// The users of every devcluster.
var (
	// Admin may do everything.
	Admin = User{File: "admin", Name: "dev-admin", Groups: []string{"system:masters"}}
	// Plain may do what any authenticated user may: discovery, little more.
	Plain = User{File: "user", Name: "dev-user"}
	// Reader may get, list and watch everything except secrets, see grantReader.
	Reader = User{File: "reader", Name: "dev-reader"}

	users = []User{Admin, Plain, Reader}
)

// tokenAuthFile has a line "token,name,uid[,"group,…"]" for each user:
// https://kubernetes.io/docs/reference/access-authn-authz/authentication/#static-token-file
const tokenAuthFile = "tokens.csv"

// tokenFile is the file of Dir with the user's token and nothing else.
func (u User) tokenFile() string { return u.File + ".token" }

// token returns the user's token in d, making one if there is none.
func (u User) token(d Dir) (string, error) {
	path := d.file(u.tokenFile())
	data, err := os.ReadFile(path)
	if err == nil {
		return strings.TrimSpace(string(data)), nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return "", err
	}
	token := rand.Text()
	return token, writeFile(path, []byte(token))
}

// writeTokens writes tokens.csv, with new tokens for users that have none.
func writeTokens(d Dir) error {
	var b bytes.Buffer
	for _, u := range users {
		token, err := u.token(d)
		if err != nil {
			return fmt.Errorf("token of %s: %w", u.Name, err)
		}
		fmt.Fprintf(&b, "%s,%s,%s", token, u.Name, u.Name)
		if len(u.Groups) > 0 {
			fmt.Fprintf(&b, ",%q", strings.Join(u.Groups, ","))
		}
		b.WriteByte('\n')
	}
	return writeFile(d.file(tokenAuthFile), b.Bytes())
}
