package main

import (
	"encoding/csv"
	"os"
	"slices"
	"strings"
	"testing"
)

func TestWriteTokens(t *testing.T) {
	d := Dir(t.TempDir())
	read := func() [][]string {
		if err := writeTokens(d); err != nil {
			t.Fatal(err)
		}
		f, err := os.Open(d.file(tokenAuthFile))
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		r := csv.NewReader(f)
		r.FieldsPerRecord = -1 // as kube-apiserver reads it
		records, err := r.ReadAll()
		if err != nil {
			t.Fatal(err)
		}
		return records
	}

	first := read()
	if len(first) != len(users) {
		t.Fatalf("got %d records, want %d", len(first), len(users))
	}
	for i, u := range users {
		checkPrivate(t, d.file(u.tokenFile()))
		token, err := u.token(d)
		want := []string{token, u.Name, u.Name}
		if len(u.Groups) > 0 {
			want = append(want, strings.Join(u.Groups, ","))
		}
		if err != nil || !slices.Equal(first[i], want) {
			t.Errorf("%s: got %q, %v, want %q", u.Name, first[i], err, want)
		}
		if len(token) < 26 { // 130 bits
			t.Errorf("%s: a token of %d characters", u.Name, len(token))
		}
	}
	checkPrivate(t, d.file(tokenAuthFile))
	if second := read(); !slices.EqualFunc(second, first, slices.Equal) {
		t.Error("the second run made other tokens")
	}
}
