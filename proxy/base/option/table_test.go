package option_test

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/watchfan/watchfan/proxy/base/option"
)

// settings has one setting of each kind.
type settings struct {
	name, format string
	on           bool
	count        int
	size         int64
	idle, every  time.Duration
	list         []string
	level        slog.Level
}

func (s *settings) table() *option.Table {
	t := &option.Table{APIVersion: "example.com/v1", Kind: "Settings"}
	t.Group("First")
	t.String(&s.name, "name", "", "`NAME` of it")
	t.String(&s.format, "log-format", "text", "`FORMAT` of it", option.OneOf("text", "json"))
	t.Bool(&s.on, "on", true, "whether it is on")
	t.Int(&s.count, "count", 3, "`NUMBER` of them", option.AtLeast(1))
	t.Group("Second")
	t.Size(&s.size, "client-buffer-bytes", 1<<20, "`BYTES` of it", option.AtLeast[int64](1<<10))
	t.Duration(&s.idle, "idle-timeout", 10*time.Minute, "`DURATION` of it", option.NotNegative)
	t.Duration(&s.every, "every", time.Second, "`DURATION` between two", option.Within(time.Millisecond, time.Hour))
	t.Strings(&s.list, "client-ca-list", "`NAMES`", option.OneOf("a", "b", "c"))
	t.Level(&s.level, "least `LEVEL`", "the level as a `NUMBER`")
	return t
}

// TestCheck: an error names the place of the setting, and says what to give instead.
func TestCheck(t *testing.T) {
	f := func(content, args, want string) {
		t.Helper()
		var s settings
		table := s.table()
		table.SetDefaults()
		err := table.Flags().Parse(strings.Fields(args))
		if err == nil {
			err = table.ReadConfig("c.yaml", []byte("apiVersion: example.com/v1\nkind: Settings\n"+content))
		}
		if err == nil {
			err = table.Check()
		}
		if err == nil || err.Error() != want {
			t.Errorf("%s %s: got %v want %s", content, args, err, want)
		}
	}
	f("", "--count=0", "--count=0 is too small: give at least 1")
	f("count: 0", "", "c.yaml:3: count: 0 is too small: give at least 1")
	f("count: 0", "--count=-1", "--count=-1 is too small: give at least 1")
	f("clientBufferBytes: 1", "", "c.yaml:3: clientBufferBytes: 1 is too small: give at least 1024")
	f("", "--every=2h", "--every=2h0m0s is too long: give at most 1h0m0s")
	f("", "--every=1ns", "--every=1ns is too short: give at least 1ms")
	f("", "--idle-timeout=-1s", "--idle-timeout=-1s is too short: give a positive duration, for example 30s")
	f("", "--log-format=xml", `--log-format="xml" is unknown: give text or json`)
	f("clientCAList: [a, x]", "", `c.yaml:3: clientCAList: "x" is unknown: give a, b or c`)
	f("v: 4", "", "c.yaml:3: v: unknown field; watchfan config prints all there are")
}

func TestHelp(t *testing.T) {
	var s settings
	table := s.table()
	table.SetDefaults()
	var all, parts bytes.Buffer
	table.PrintHelp(&all, "")
	for _, group := range table.Groups() {
		table.PrintHelp(&parts, group)
	}
	if all.String() != parts.String() {
		t.Errorf("the groups are not the whole: %s", &all)
	}
	want := "\nFirst:\n  --name NAME\n      NAME of it\n  --log-format FORMAT\n      FORMAT of it (default text)\n"
	if !strings.HasPrefix(all.String(), want) {
		t.Errorf("got %s want %s", &all, want)
	}
}

// TestFileAndFlags: flags win over the file, and the file over the defaults.
func TestFileAndFlags(t *testing.T) {
	var s settings
	table := s.table()
	content := "apiVersion: example.com/v1\nkind: Settings\nlogLevel: error\nclientCAList: [a]\ncount: 5\nname: x\n"
	if err := table.Flags().Parse(strings.Fields("-v=4 --client-ca-list=b --client-ca-list=c --count=6")); err != nil {
		t.Fatal(err)
	}
	if err := table.ReadConfig("c.yaml", []byte(content)); err != nil {
		t.Fatal(err)
	}
	if s.level != slog.LevelDebug || strings.Join(s.list, " ") != "b c" || s.count != 6 || s.name != "x" {
		t.Errorf("got %+v", s)
	}
}

// TestGroups: groups have the order of the titles, and a row is added at the end of its group.
func TestGroups(t *testing.T) {
	table := &option.Table{Titles: []string{"B", "A"}}
	on := make([]bool, 5)
	for i, group := range []string{"A", "C", "B", "A", "B"} {
		table.Group(group)
		table.Bool(&on[i], string(rune('a'+i)), false, "TEXT")
	}
	var help bytes.Buffer
	table.PrintHelp(&help, "")
	got := strings.Join(strings.Fields(help.String()), " ")
	if got != "B: -c TEXT -e TEXT A: -a TEXT -d TEXT C: -b TEXT" {
		t.Errorf("got %s", got)
	}
}
