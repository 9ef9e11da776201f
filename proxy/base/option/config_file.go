package option

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

// maxFileBytes bounds a configuration file.
const maxFileBytes = 1 << 20

// ReadFile sets the variables from the configuration file called name; see ReadConfig. An error
// about a file that cannot be read begins with the flag that names the file.
func (t *Table) ReadFile(flag, name string) error {
	content, err := readFile(name)
	if err != nil {
		return fmt.Errorf("%s: %w", dashed(flag), err)
	}
	return t.ReadConfig(filepath.Base(name), content)
}

func readFile(name string) ([]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err == nil && len(content) > maxFileBytes {
		err = fmt.Errorf("%s is larger than %d bytes", name, maxFileBytes)
	}
	return content, err
}

// ReadConfig sets the variables from the content of a configuration file, one YAML or JSON object:
//
//	apiVersion: watchfan.io/v1alpha1
//	kind: WatchfanConfiguration
//	idleTimeout: 10m
//
// A variable whose flag has been given keeps its value. ReadConfig notes in Places where each of the
// others is set. It reports everything that is wrong, each error as "NAME:LINE: FIELD: what is wrong".
func (t *Table) ReadConfig(name string, content []byte) error {
	object, err := readObject(name, content)
	if err != nil {
		return err
	}
	if object == nil {
		return fmt.Errorf("%s:1: no object: begin with apiVersion: %s and kind: %s", name, t.APIVersion, t.Kind)
	}
	for _, r := range t.rows {
		if r.flag.Changed {
			given := reflect.ValueOf(r.variable.Interface())
			defer func() {
				r.variable.Set(given)
				delete(t.Places, r.flag.Name)
			}()
		}
	}
	r := fileReader{name: name, table: t, lines: make(map[string]int)}
	t.Places = make(map[string]string)
	for i := 0; i < len(object.Content); i += 2 {
		r.field(object.Content[i], object.Content[i+1])
	}
	for _, h := range t.header() {
		if r.lines[h.field] == 0 {
			r.errs = append(r.errs, fmt.Errorf("%s:%d: %s: missing: give %s", name, object.Line, h.field, h.want))
		}
	}
	return errors.Join(r.errs...)
}

// readObject returns the only object of a file; nil if the file is empty or holds something else.
func readObject(name string, content []byte) (*yaml.Node, error) {
	var document, more yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	if err := decoder.Decode(&document); err != nil && err != io.EOF {
		return nil, syntaxError(name, err)
	}
	if err := decoder.Decode(&more); err == nil {
		return nil, fmt.Errorf("%s:%d: a second document: give one", name, more.Line)
	} else if err != io.EOF {
		return nil, syntaxError(name, err)
	}
	if len(document.Content) == 0 || document.Content[0].Kind != yaml.MappingNode {
		return nil, nil
	}
	return document.Content[0], nil
}

// syntaxError begins with the place, where package yaml says "yaml: line 3: …".
func syntaxError(name string, err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		return fmt.Errorf("%s:%s", name, rest)
	}
	return fmt.Errorf("%s: %s", name, text)
}

// Changed returns the fields of the configuration file in which the variables of t and of another
// table with the same rows differ.
func (t *Table) Changed(other *Table) (fields []string) {
	for i, r := range t.rows {
		if !r.flagOnly && !reflect.DeepEqual(r.variable.Interface(), other.rows[i].variable.Interface()) {
			fields = append(fields, fileField(r.flag.Name))
		}
	}
	return fields
}

// headerField is a field that every file must have.
type headerField struct{ field, want string }

func (t *Table) header() []headerField {
	if t.Partial {
		return nil
	}
	return []headerField{{"apiVersion", t.APIVersion}, {"kind", t.Kind}}
}

// fileReader reads the fields of one file.
type fileReader struct {
	name  string
	table *Table
	lines map[string]int // of the fields read so far
	errs  []error
}

func (r *fileReader) field(key, value *yaml.Node) {
	field := strings.Trim(strconv.Quote(key.Value), `"`) // one line, also if the key has line breaks
	wrong := func(format string, args ...any) {
		r.errs = append(r.errs, fmt.Errorf("%s:%d: %s: %w", r.name, key.Line, field, fmt.Errorf(format, args...)))
	}
	row := slices.IndexFunc(r.table.rows, func(x row) bool { return !x.flagOnly && fileField(x.flag.Name) == key.Value })
	header := slices.IndexFunc(r.table.header(), func(h headerField) bool { return h.field == key.Value })
	if t := r.table; t.Partial && row < 0 {
		return
	}
	if key.Kind != yaml.ScalarNode || row < 0 && header < 0 {
		wrong("unknown field; watchfan config prints all there are")
		return
	}
	if first := r.lines[field]; first > 0 {
		wrong("given twice, first in line %d", first)
		return
	}
	r.lines[field] = key.Line
	if header >= 0 {
		if want := r.table.header()[header].want; value.Value != want {
			wrong("%q is not known here: give %s", value.Value, want)
		}
		return
	}
	set := &r.table.rows[row]
	r.table.Places[set.flag.Name] = fmt.Sprintf("%s:%d: %s", r.name, key.Line, field)
	if err := set.read(value); err != nil {
		wrong("%w", err)
	}
}

// read sets a row's variable from a node, which must have the row's type.
func (r *row) read(node *yaml.Node) error {
	if list, ok := r.flag.Value.(nodeReader); ok {
		return list.read(node)
	}
	text, tags := want(r.flag.Value.Type())
	if node.Kind != yaml.ScalarNode || !slices.Contains(tags, node.ShortTag()) {
		return errors.New(cmp.Or(text, "give a string, in quotes if YAML would take it for something else"))
	}
	if err := r.flag.Value.Set(node.Value); err != nil {
		return fmt.Errorf("%q: %s", node.Value, cmp.Or(text, err.Error()))
	}
	return nil
}

// nodeReader is a value of more than one word.
type nodeReader interface{ read(*yaml.Node) error }

func (v *listValue) read(node *yaml.Node) error {
	if node.Kind != yaml.SequenceNode {
		return errors.New("give a list of strings")
	}
	*v = nil
	for _, element := range node.Content {
		if element.Kind != yaml.ScalarNode || element.ShortTag() != "!!str" || element.Value == "" {
			return fmt.Errorf("line %d: give a string", element.Line)
		}
		*v = append(*v, element.Value)
	}
	return nil
}

// WriteConfig writes the variables as a configuration file with all fields. Reading that file sets
// the same values.
func (t *Table) WriteConfig(w io.Writer) error {
	object := &yaml.Node{Kind: yaml.MappingNode}
	var errs []error
	add := func(field, comment string, value any) {
		key, node := &yaml.Node{HeadComment: comment}, &yaml.Node{}
		key.SetString(field)
		errs = append(errs, node.Encode(value))
		object.Content = append(object.Content, key, node)
	}
	for _, h := range t.header() {
		add(h.field, "", h.want)
	}
	group := ""
	for _, r := range t.rows {
		if r.flagOnly {
			continue
		}
		value := r.variable.Interface()
		switch value.(type) {
		case int64, time.Duration, slog.Level:
			value = short(r.flag.Value.String(), r.flag)
		}
		comment := ""
		if r.group != group {
			group, comment = r.group, r.group
		}
		add(fileField(r.flag.Name), comment, value)
	}
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	return errors.Join(append(errs, encoder.Encode(object), encoder.Close())...)
}

// fileField returns the configuration file's field for a flag, in camelCase as in Kubernetes' own
// configuration files.
//
//	client-buffer-bytes  →  clientBufferBytes          client-ca-file  →  clientCAFile
func fileField(name string) string {
	words := strings.Split(name, "-")
	for i, word := range words {
		switch {
		case word == "ca" || word == "uid" || word == "ttl":
			words[i] = strings.ToUpper(word)
		case word == "maxage" || word == "maxbackup" || word == "maxsize":
			words[i] = "Max" + strings.ToUpper(word[3:4]) + word[4:]
		case word == "requestheader":
			words[i] = "requestHeader"
		case i > 0:
			words[i] = strings.ToUpper(word[:1]) + word[1:]
		}
	}
	return strings.Join(words, "")
}
