package main

import (
	"compress/gzip"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
)

// line is one line of a record. Times are in nanoseconds since the suite began.
type line struct {
	Kind   string            `json:"kind"`
	Client string            `json:"client"`
	At     int64             `json:"at"`
	Until  int64             `json:"until"`
	RV     int64             `json:"rv"`
	Key    string            `json:"key"`
	Value  string            `json:"value"`
	Meta   string            `json:"meta"`
	Lean   string            `json:"lean"`
	Scant  string            `json:"scant"`
	Quiet  string            `json:"quiet"`
	Half   int               `json:"half"`
	Labels map[string]string `json:"labels"`

	Scope   *scope  `json:"scope"`
	Asked   string  `json:"asked"`
	Match   string  `json:"match"`
	Initial bool    `json:"initial"`
	Objects []shown `json:"objects"`

	Type   string `json:"type"`
	Relist int64  `json:"relist"`
	More   bool   `json:"more"`
	Error  string `json:"error"`
	Seed   uint64 `json:"seed"`
}

// scope is what a request selects, and in which form.
type scope struct {
	Resource  string `json:"resource"`
	Namespace string `json:"namespace"`
	Name      string `json:"name"` // of a get
	Labels    string `json:"labels"`
	Fields    string `json:"fields"`
	Metadata  bool   `json:"metadata"` // without the rest of the objects
	Lean      bool   `json:"lean"`     // without metadata.managedFields
	Half      int    `json:"half"`     // 0 for both halves
	Quiet     bool   `json:"quiet"`    // in the quiet view, whose selector is one of Labels
}

// prefix is how the keys begin in etcd. A get's is the whole key.
func (s scope) prefix() string {
	prefix := "/" + s.Resource + "/"
	if s.Namespace != "" {
		prefix += s.Namespace + "/"
	}
	return prefix + s.Name
}

// shown is an object as a client was shown it.
type shown struct {
	Key   string `json:"key"` // namespace/name
	RV    int64  `json:"rv"`
	Value string `json:"value"` // digest of its content
}

// readRecord reads a record from a file, packed with gzip. A record that breaks off is an error.
func readRecord(name string) ([]line, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	in, err := gzip.NewReader(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	lines, err := readLines(in)
	if err != nil {
		return nil, fmt.Errorf("read %s: line %d: %w", name, len(lines)+1, err)
	}
	return lines, nil
}

func readLines(in io.Reader) (lines []line, err error) {
	decoder := json.NewDecoder(in)
	decoder.DisallowUnknownFields() // the suite and the judge agree on the form
	for {
		var l line
		switch err := decoder.Decode(&l); {
		case err == io.EOF && len(lines) > 0 && lines[len(lines)-1].Kind == "done":
			return lines, nil
		case err == io.EOF:
			return lines, errors.New("the record has no end: the suite did not finish")
		case err != nil:
			return lines, err
		case (l.Kind == "read" || l.Kind == "watch") && l.Scope == nil:
			return lines, fmt.Errorf("a %s without a scope", l.Kind)
		}
		lines = append(lines, l)
	}
}
