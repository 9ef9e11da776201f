package proxy_test

import (
	"bytes"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"

	"github.com/watchfan/watchfan/proxy"
	"github.com/watchfan/watchfan/proxy/gate/view"
	"github.com/watchfan/watchfan/proxy/store/observe"
)

const header = "apiVersion: watchfan.io/v1alpha1\nkind: WatchfanConfiguration\n"

// configFile returns the name of a configuration file with the content.
func configFile(t testing.TB, content string) string {
	t.Helper()
	name := filepath.Join(t.TempDir(), "config.yaml")
	if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

// samples has a value for each type of flag that is not the default: as the configuration file has
// it, and as the command line has it.
var samples = map[reflect.Type][2]string{
	reflect.TypeFor[string]():        {`"10.1.2.3"`, "10.1.2.3"},
	reflect.TypeFor[int]():           {"4321", "4321"},
	reflect.TypeFor[int64]():         {"3Mi", "3Mi"},
	reflect.TypeFor[[]string]():      {"[a, b]", "a,b"},
	reflect.TypeFor[time.Duration](): {"1h17m", "1h17m"},
	reflect.TypeFor[slog.Level]():    {"warn", "warn"},
	reflect.TypeFor[view.Configs]():  {"[{name: a, drop: [{fields: [data]}]}]", ""},
	reflect.TypeFor[observe.Rules](): {"[{percent: 10, mode: observe}]", ""},
}

// TestConfigFields: each exported field of Options has exactly one field in the file and exactly
// one flag, with the same letters. Both set this option and nothing else. Only -v is another flag
// for LogLevel. Views and clients have no flag.
func TestConfigFields(t *testing.T) {
	var defaults bytes.Buffer
	none := proxy.NewOptions()
	if err := none.WriteConfig(&defaults); err != nil {
		t.Fatal(err)
	}
	flags := map[string]string{} // by their letters
	proxy.NewFlags().Table.Flags().VisitAll(func(f *pflag.Flag) { flags[strings.ReplaceAll(f.Name, "-", "")] = f.Name })
	delete(flags, "v")
	delete(flags, "config")
	fields := map[string]string{}
	for line := range strings.Lines(defaults.String()) {
		if field, _, ok := strings.Cut(line, ":"); ok && field != "apiVersion" && field != "kind" {
			fields[strings.ToLower(field)] = field
		}
	}

	all := exportedFields(reflect.TypeFor[proxy.Options]())
	changed := func(o proxy.Options) (names []string) {
		v, w := reflect.ValueOf(o), reflect.ValueOf(proxy.NewOptions())
		for _, f := range all {
			if !reflect.DeepEqual(v.FieldByIndex(f.Index).Interface(), w.FieldByIndex(f.Index).Interface()) {
				names = append(names, f.Name)
			}
		}
		return names
	}
	for _, f := range all {
		if f.Name == "Version" { // it is no option
			continue
		}
		letters := strings.ToLower(f.Name)
		inFile, onLine := samples[f.Type][0], samples[f.Type][1]
		if f.Type.Kind() == reflect.Bool {
			inFile = "true"
			if reflect.ValueOf(none).FieldByIndex(f.Index).Bool() {
				inFile = "false"
			}
			onLine = inFile
		}
		switch f.Name {
		case "LogFormat":
			inFile, onLine = "json", "json"
		case "AuditLogMode":
			inFile, onLine = "blocking", "blocking"
		}
		args := map[string][]string{
			"file": {"--config", configFile(t, header+fields[letters]+": "+inFile+"\n")},
			"flag": {"--" + flags[letters] + "=" + onLine},
		}
		if onLine == "" { // it is no single word
			delete(args, "flag")
		}
		for from, args := range args {
			o, err := proxy.ParseFlags(args)
			if got := changed(o); err != nil || len(got) != 1 || got[0] != f.Name {
				t.Errorf("%s, set by %s %v: %v were set, %v", f.Name, from, args, got, err)
			}
		}
		delete(flags, letters)
		delete(fields, letters)
	}
	if len(flags)+len(fields) > 0 {
		t.Errorf("of no option: flags %v, fields of the file %v", flags, fields)
	}
}

// exportedFields returns the fields of a struct and of the structs in it.
func exportedFields(t reflect.Type) (fields []reflect.StructField) {
	for _, f := range reflect.VisibleFields(t) {
		if f.Name == "Tuning" { // operators do not see it
			continue
		}
		if f.IsExported() && f.Type.Kind() == reflect.Struct {
			for _, in := range exportedFields(f.Type) {
				in.Index = append(slices.Clone(f.Index), in.Index...)
				fields = append(fields, in)
			}
		} else if f.IsExported() {
			fields = append(fields, f)
		}
	}
	return fields
}

func printConfig(t testing.TB, o proxy.Options) string {
	t.Helper()
	var b bytes.Buffer
	if err := o.WriteConfig(&b); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestConfigErrors: an error names the file, the line and the field.
func TestConfigErrors(t *testing.T) {
	f := func(content string, want ...string) {
		t.Helper()
		o, err := proxy.ParseFlags([]string{"--config", configFile(t, content)})
		if err == nil {
			err = o.Validate()
		}
		if got := strings.Split(fmt.Sprint(err), "\n"); !slices.EqualFunc(got, want, strings.HasPrefix) {
			t.Errorf("%q: got %q, want %q", content, got, want)
		}
	}
	f("", "config.yaml:1: no object")
	f("[]", "config.yaml:1: no object")
	f("a: [", "config.yaml:1: did not find")
	f("a:\n\tb: 1", "config.yaml:2: found character")
	f("{}", "config.yaml:1: apiVersion: missing", "config.yaml:1: kind: missing")
	f("\nkind: Pod\napiVersion: v1", `config.yaml:2: kind: "Pod" is not known here: give WatchfanConfiguration`,
		`config.yaml:3: apiVersion: "v1" is`)
	f(header+"---\n"+header, "config.yaml:3: a second document")
	f(header+"clientBufferByte: 1", "config.yaml:3: clientBufferByte: unknown field")
	f(header+"clientbufferbytes: 1", "config.yaml:3: clientbufferbytes: unknown field")
	f(header+"v: 4\nconfig: x\n'': 1", "config.yaml:3: v: unknown", "config.yaml:4: config: unknown",
		"config.yaml:5: : unknown")
	f(header+"? [a]\n: 1", "config.yaml:3: : unknown field")
	f(header+"idleTimeout: 1m\nprofiling: true\nidleTimeout: 1m",
		"config.yaml:5: idleTimeout: given twice, first in line 3")
	f(header+"kind: WatchfanConfiguration", "config.yaml:3: kind: given twice")
	f(header+"clientBufferBytes: many", `config.yaml:3: clientBufferBytes: "many": give bytes`)
	f(header+"clientBufferBytes: 1e30", `config.yaml:3: clientBufferBytes: give bytes`)
	f(header+"clientBufferBytes: '1e30'", `config.yaml:3: clientBufferBytes: "1e30": give bytes`)
	f(header+"idleTimeout: 10", "config.yaml:3: idleTimeout: give a duration")
	f(header+"idleTimeout: 10 minutes", `config.yaml:3: idleTimeout: "10 minutes": give a duration`)
	f(header+"idleTimeout:", "config.yaml:3: idleTimeout: give a duration")
	f(header+"profiling: 1", "config.yaml:3: profiling: give true or false")
	f(header+"adminPort: '1'", "config.yaml:3: adminPort: give a whole number")
	f(header+"adminPort: 1.5", "config.yaml:3: adminPort: give a whole number")
	f(header+"context: 1", "config.yaml:3: context: give a string")
	f(header+"logLevel: loud", `config.yaml:3: logLevel: "loud": give debug`)
	f(header+"residentResources: pods", "config.yaml:3: residentResources: give a list")
	f(header+"residentResources:\n- pods\n- 3", "config.yaml:3: residentResources: line 5: give a string")
	f(header+"context: &a x\nkubeconfig: *a", "config.yaml:4: kubeconfig: give a string")
	f(header+"<<: {context: x}", "config.yaml:3: <<: unknown field")
	// Values of the right type that are not valid.
	f(header+"\nhistoryBytes: 5\nadminPort: 70000", "config.yaml:4: historyBytes: 5 is too small",
		"config.yaml:5: adminPort: 70000 is no port")
	f(header+"adminPort: 8443", "config.yaml:3: adminPort: 8443 is that of --secure-port too")
	f(header+"tlsCertFile: x", "config.yaml:3: tlsCertFile and --tls-private-key-file go together")
	f(header+"certDir: ''", "config.yaml:3: certDir is empty")
	f(header+"logFormat: xml", `config.yaml:3: logFormat: "xml" is unknown`)
	f(header+"residentResources: [Pods]", `config.yaml:3: residentResources: "Pods" is no resource`)

	for _, args := range [][]string{{"--config", filepath.Join(t.TempDir(), "none")}, {"--config", t.TempDir()},
		{"--config", configFile(t, strings.Repeat("#", 2<<20))}} {
		if _, err := proxy.ParseFlags(args); err == nil || !strings.HasPrefix(err.Error(), "--config: ") {
			t.Errorf("%v: got %v", args, err)
		}
	}
}

// FuzzConfig: no file makes the parser panic, and each error names the file. An accepted file is
// printed as a file that is accepted and has the same meaning.
func FuzzConfig(f *testing.F) {
	o := proxy.NewOptions()
	f.Add([]byte(printConfig(f, o)))
	f.Add([]byte(`{"apiVersion": "watchfan.io/v1alpha1", "kind": "WatchfanConfiguration", "historyBytes": "1.5Gi", ` +
		`"residentResources": ["pods"]}`))
	f.Add([]byte(header + "context: |\n  a\n  b\ncertDir: \"\\u2028\"\nidleTimeout: -1ns\nlogLevel: debug+3\n"))
	f.Add([]byte(header + "kubeconfig: 'yes'\ncontext: '007'\ncertDir: 'a: b # c'\nhistoryBytes: 12345678\nidleTimeout: 1h0m1s\n" +
		"requestHeaderAllowedNames: ['null', '~', '*x', 'a, b']\nlogLevel: debug\nanonymousAuth: false\nadminPort: -1\n"))
	f.Add([]byte(header + "adminPort: 0x1F\nhistoryBytes: !!str 1\nkubeconfig: !x y\n---\n"))
	f.Fuzz(func(t *testing.T, content []byte) {
		o := proxy.NewOptions()
		if err := o.ReadConfig("config.yaml", content); err != nil {
			for line := range strings.Lines(err.Error()) {
				if !strings.HasPrefix(line, "config.yaml:") {
					t.Errorf("the error %q does not name the file", line)
				}
			}
			return
		}
		printed := printConfig(t, o)
		again := proxy.NewOptions()
		if err := again.ReadConfig("config.yaml", []byte(printed)); err != nil {
			t.Fatalf("%v\n%s", err, printed)
		}
		if got := printConfig(t, again); got != printed {
			t.Errorf("got\n%s\nwant\n%s", got, printed)
		}
	})
}
