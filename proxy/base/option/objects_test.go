package option

import (
	"strings"
	"testing"
)

type word string

func (w word) Wrong() string {
	if len(w) > 3 {
		return "is too long: give three letters"
	}
	return ""
}

type phrase struct {
	Words []word `yaml:"words,omitempty"`
	Of    word   `yaml:"of"`
	Often bool   `yaml:"often,omitempty"`
}

func (p phrase) Wrong() string {
	if p.Of == "" {
		return "is of nobody: give of"
	}
	return ""
}

type phrases []phrase

func (ps phrases) Wrong() string {
	if len(ps) > 2 {
		return "are too many: give two"
	}
	return ""
}

// Objects have a field in the file and no flag. Each error names its line.
func TestObjects(t *testing.T) {
	f := func(content, want string) {
		t.Helper()
		var read phrases
		table := &Table{APIVersion: "v", Kind: "K"}
		Objects[phrase](table, &read, "many-phrases", "`PHRASES`")
		err := table.ReadConfig("f", []byte("apiVersion: v\nkind: K\nmanyPhrases:\n"+content))
		switch {
		case want == "" && (err != nil || table.Check() != nil):
			t.Errorf("%s: %v, %v", content, err, table.Check())
		case want != "" && (err == nil || !strings.HasPrefix(err.Error(), "f:3: manyPhrases: "+want)):
			t.Errorf("%s: got %v, want %s", content, err, want)
		}
		if table.Flags().Lookup("many-phrases") != nil {
			t.Error("there is a flag")
		}
	}
	f("- {of: a}\n- {of: b, words: [c, d], often: true}\n", "")
	f("- {of: a, often: often}\n", `line 4: manyPhrases[0].often: give true or false`)
	f("- {of: a}\n- of: long\n", `line 5: manyPhrases[1].of: "long" is too long`)
	f("- of: a\n  words:\n  - b\n  - 7\n", `line 7: manyPhrases[0].words[1]: give a string`)
	f("- of: a\n  words: {}\n", `line 5: manyPhrases[0].words: give a list`)
	f("- words: [a]\n", `line 4: manyPhrases[0]: is of nobody`)
	f("- {of: a}\n- {of: a}\n- {of: a}\n", `line 4: manyPhrases: are too many`)
	f("- of: a\n  off: b\n", `line 5: manyPhrases[0]: unknown field "off": give words, of, often`)
	f("- of: a\n  of: b\n", `line 5: manyPhrases[0]: of is given twice`)
	f("- [a]\n", `line 4: manyPhrases[0]: give an object with words, of, often`)
	f("- of: &x a\n- of: *x\n", `line 5: manyPhrases[1].of: give a string`)

	set := phrases{{Of: "a"}}
	table := &Table{}
	Objects[phrase](table, &set, "many-phrases", "`PHRASES`")
	table.SetDefaults()
	if set != nil {
		t.Errorf("the default is %v", set)
	}
}
