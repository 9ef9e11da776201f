package proxy

import (
	"bytes"
	"cmp"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.yaml.in/yaml/v3"
)

const (
	configAPIVersion = "watchfan.io/v1alpha1"
	configKind       = "WatchfanConfiguration"
	maxConfigBytes   = 1 << 20
)

// ErrVersion is what ParseFlags returns for --version.
var ErrVersion = errors.New("version requested")

// ParseFlags returns the options of a command line: the defaults, over them the configuration file that --config names, over that the
// flags of args. It does not validate them. The error is flag.ErrHelp for --help, ErrVersion for --version; else it says what is wrong,
// in the file with file, line and field.
func ParseFlags(args []string) (Options, error) {
	o := NewOptions()
	file, err := o.parseFlags(args)
	if err != nil || file == "" {
		return o, err
	}
	o = NewOptions()
	if err := o.readConfigFile(file); err != nil {
		return o, err
	}
	_, err = o.parseFlags(args)
	return o, err
}

// newFlagSet returns all flags: o's, and the program's own.
func (o *Options) newFlagSet() (fs *flag.FlagSet, config *string, version *bool) {
	fs = flag.NewFlagSet("watchfan", flag.ContinueOnError)
	fs.SetOutput(io.Discard)
	fs.Usage = func() {}
	o.AddFlags(fs)
	config = fs.String("config", "", "`FILE` with the configuration, as watchfan config prints it; flags win over it; read once, at the start (default none)")
	version = fs.Bool("version", false, "print the version and exit")
	return fs, config, version
}

// parseFlags sets o as args say, and returns the name of the configuration file.
func (o *Options) parseFlags(args []string) (file string, err error) {
	fs, config, version := o.newFlagSet()
	switch err := fs.Parse(args); {
	case err != nil:
		return "", err
	case *version:
		return "", ErrVersion
	case fs.NArg() > 0:
		return "", fmt.Errorf("flags only, not %q", fs.Arg(0))
	}
	fs.Visit(func(f *flag.Flag) { delete(o.places, f.Name) })
	return *config, nil
}

// configField returns the configuration file's field for a flag, camelCase as in Kubernetes' own files; "" if it has none.
//
//	client-buffer-bytes  →  clientBufferBytes          client-ca-file  →  clientCAFile
func configField(name string) string {
	if name == "v" || name == "config" || name == "version" { // -v is logLevel
		return ""
	}
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

func (o *Options) readConfigFile(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, maxConfigBytes+1))
	if err != nil {
		return fmt.Errorf("--config: %w", err)
	}
	if len(content) > maxConfigBytes {
		return fmt.Errorf("--config: %s is larger than %d bytes", name, maxConfigBytes)
	}
	return o.readConfig(filepath.Base(name), content)
}

// readConfig sets o as a configuration file says, one YAML or JSON object:
//
//	apiVersion: watchfan.io/v1alpha1
//	kind: WatchfanConfiguration
//	idleTimeout: 10m
//
// It reports everything that is wrong, each error as "NAME:LINE: FIELD: what is wrong".
func (o *Options) readConfig(name string, content []byte) error {
	var document, more yaml.Node
	decoder := yaml.NewDecoder(bytes.NewReader(content))
	if err := decoder.Decode(&document); err != nil && err != io.EOF {
		return syntaxError(name, err)
	}
	if err := decoder.Decode(&more); err == nil {
		return fmt.Errorf("%s:%d: a second document: give one", name, more.Line)
	} else if err != io.EOF {
		return syntaxError(name, err)
	}
	if len(document.Content) == 0 || document.Content[0].Kind != yaml.MappingNode {
		return fmt.Errorf("%s:1: no object: begin with apiVersion: %s and kind: %s", name, configAPIVersion, configKind)
	}

	fs, _, _ := o.newFlagSet()
	flags := make(map[string]*flag.Flag) // by field
	fs.VisitAll(func(f *flag.Flag) { flags[configField(f.Name)] = f })
	delete(flags, "")
	o.places = make(map[string]string)

	var errs []error
	header := map[string]string{"apiVersion": configAPIVersion, "kind": configKind}
	lines := make(map[string]int) // of fields seen
	fields := document.Content[0].Content
	for i := 0; i < len(fields); i += 2 {
		key, value := fields[i], fields[i+1]
		field := strings.Trim(strconv.Quote(key.Value), `"`) // in one line, whatever it is
		wrong := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("%s:%d: %s: %w", name, key.Line, field, fmt.Errorf(format, args...)))
		}
		f, known := flags[key.Value]
		want, isHeader := header[key.Value]
		switch first := lines[field]; {
		case key.Kind != yaml.ScalarNode || !known && !isHeader:
			wrong("unknown field; watchfan config prints all there are")
		case first > 0:
			wrong("given twice, first in line %d", first)
		case isHeader:
			lines[field] = key.Line
			if value.Value != want {
				wrong("%q is not known here: give %s", value.Value, want)
			}
		default:
			lines[field] = key.Line
			o.places[f.Name] = fmt.Sprintf("%s:%d: %s", name, key.Line, field)
			if err := setField(f.Value, value); err != nil {
				wrong("%w", err)
			}
		}
	}
	for _, field := range []string{"apiVersion", "kind"} {
		if lines[field] == 0 {
			errs = append(errs, fmt.Errorf("%s:%d: %s: missing: give %s", name, document.Content[0].Line, field, header[field]))
		}
	}
	return errors.Join(errs...)
}

// syntaxError puts the place in front, where yaml says "yaml: line 3: …".
func syntaxError(name string, err error) error {
	text := strings.TrimPrefix(err.Error(), "yaml: ")
	if rest, ok := strings.CutPrefix(text, "line "); ok {
		return fmt.Errorf("%s:%s", name, rest)
	}
	return fmt.Errorf("%s: %s", name, text)
}

// setField sets a flag from a node, which must be of the flag's type.
func setField(v flag.Value, node *yaml.Node) error {
	if list, ok := v.(*listValue); ok {
		if node.Kind != yaml.SequenceNode {
			return errors.New("give a list of strings")
		}
		*list.values = nil
		for _, element := range node.Content {
			if element.Kind != yaml.ScalarNode || element.ShortTag() != "!!str" || element.Value == "" {
				return fmt.Errorf("line %d: give a string", element.Line)
			}
			*list.values = append(*list.values, element.Value)
		}
		return nil
	}
	var want string
	tags := []string{"!!str"}
	switch v.(flag.Getter).Get().(type) {
	case bool:
		want, tags = "give true or false", []string{"!!bool"}
	case int:
		want, tags = "give a whole number", []string{"!!int"}
	case int64:
		want, tags = wantBytes, []string{"!!int", "!!str"}
	case time.Duration:
		want = "give a duration as 30s or 10m"
	}
	if node.Kind != yaml.ScalarNode || !slices.Contains(tags, node.ShortTag()) {
		return errors.New(cmp.Or(want, "give a string, in quotes if YAML would take it for something else"))
	}
	if err := v.Set(node.Value); err != nil {
		return fmt.Errorf("%q: %s", node.Value, cmp.Or(want, err.Error())) // package flag says no more than "parse error"
	}
	return nil
}

// WriteConfig writes o as a configuration file with all fields, which reads back as the same options.
func (o *Options) WriteConfig(w io.Writer) error {
	object := &yaml.Node{Kind: yaml.MappingNode}
	add := func(field, comment string, value any) error {
		key, node := &yaml.Node{HeadComment: comment}, &yaml.Node{}
		key.SetString(field)
		if err := node.Encode(value); err != nil {
			return err
		}
		object.Content = append(object.Content, key, node)
		return nil
	}
	errs := []error{add("apiVersion", "", configAPIVersion), add("kind", "", configKind)}
	fs, _, _ := o.newFlagSet()
	for _, group := range flagGroups {
		comment := group.title
		for _, name := range group.flags {
			field := configField(name)
			if field == "" {
				continue
			}
			var value any
			switch v := fs.Lookup(name).Value; v.(flag.Getter).Get().(type) {
			case bool, int, []string:
				value = v.(flag.Getter).Get()
			default:
				value = valueText(v)
			}
			errs = append(errs, add(field, comment, value))
			comment = ""
		}
	}
	encoder := yaml.NewEncoder(w)
	encoder.SetIndent(2)
	return errors.Join(append(errs, encoder.Encode(object), encoder.Close())...)
}
