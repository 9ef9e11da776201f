package view

import (
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"
)

// condition is one condition on a value. An absent value is as an absent label in Kubernetes' selectors
// (https://kubernetes.io/docs/concepts/overview/working-with-objects/labels/#label-selectors).
type condition struct {
	path   string
	op     string // =, !=, in, notin, exists or !exists
	values []string
}

// matches reports whether a value, which is nil if there is none, is as the condition says.
func (c condition) matches(value []byte) bool {
	switch c.op {
	case "exists", "!exists":
		return (value != nil) == (c.op == "exists")
	case "=", "in":
		return value != nil && slices.Contains(c.values, string(value))
	}
	return value == nil || !slices.Contains(c.values, string(value))
}

// whereParser reads conditions.
type whereParser struct {
	text string
	at   int
}

// parseWhere reads conditions with commas between them:
//
//	status.phase notin (Succeeded, Failed), spec.nodeName, !metadata.deletionTimestamp, type='a, b'
func parseWhere(text string) (all []condition, err error) {
	p := whereParser{text: text}
	for {
		c, err := p.condition()
		if err != nil {
			return nil, err
		}
		all = append(all, c)
		if p.space(); p.at == len(p.text) {
			return all, nil
		}
		if !p.take(",") {
			return nil, p.wrong("found %s: give a comma between two conditions", p.found())
		}
	}
}

// wrong says what is wrong at a column, which counts characters from 1, and what to write there.
func (p *whereParser) wrong(format string, args ...any) error {
	return fmt.Errorf("column %d: "+format, append([]any{utf8.RuneCountInString(p.text[:p.at]) + 1}, args...)...)
}

// found names what comes next, in an error.
func (p *whereParser) found() string {
	rest := p.text[p.at:]
	if rest == "" {
		return "the end"
	}
	if word := rest[:p.wordLen()]; word != "" {
		return fmt.Sprintf("%.40q", word)
	}
	_, n := utf8.DecodeRuneInString(rest)
	return fmt.Sprintf("%q", rest[:n])
}

func (p *whereParser) space() {
	p.at += len(p.text[p.at:]) - len(strings.TrimLeft(p.text[p.at:], " \t\r\n"))
}

// take takes a token that comes next.
func (p *whereParser) take(token string) bool {
	p.space()
	if !strings.HasPrefix(p.text[p.at:], token) {
		return false
	}
	p.at += len(token)
	return true
}

// wordLen is the length of the word that comes next. A word has no white space and none of =!(),'.
func (p *whereParser) wordLen() int {
	rest := p.text[p.at:]
	if n := strings.IndexAny(rest, " \t\r\n=!(),'"); n >= 0 {
		return n
	}
	return len(rest)
}

func (p *whereParser) condition() (c condition, err error) {
	absent := p.take("!")
	p.space()
	if c.path, err = p.path(); err != nil {
		return c, err
	}
	if absent {
		c.op = "!exists"
		return c, nil
	}
	for _, op := range []string{"==", "=", "!="} {
		if p.take(op) {
			c.op = strings.Replace(op, "==", "=", 1)
			value, err := p.value()
			c.values = []string{value}
			return c, err
		}
	}
	p.space()
	switch word := p.text[p.at : p.at+p.wordLen()]; word {
	case "in", "notin":
		p.at += len(word)
		c.op = word
		c.values, err = p.list()
		return c, err
	case "":
		c.op = "exists"
		return c, nil
	}
	return c, p.wrong("found %s: give =, !=, in (…), notin (…), or a comma", p.found())
}

// path reads a path, whose keys in brackets may have any character.
func (p *whereParser) path() (string, error) {
	start := p.at
	for {
		p.at += p.wordLen()
		if p.at == start || p.text[p.at-1] != '[' || !strings.HasPrefix(p.text[p.at:], "'") {
			break
		}
		end := strings.Index(p.text[p.at+1:], "'")
		if end < 0 {
			break
		}
		p.at += end + 2
	}
	path := p.text[start:p.at]
	if path == "" {
		return "", p.wrong("found %s: give a path, for example status.phase", p.found())
	}
	if wrong := wrongPath(path); wrong != "" {
		p.at = start
		return "", p.wrong("%.100q %s", path, wrong)
	}
	return path, nil
}

// value reads a value, in single quotes if it is no word. Two quotes in quotes are one.
func (p *whereParser) value() (string, error) {
	p.space()
	if !p.take("'") {
		word := p.text[p.at : p.at+p.wordLen()]
		p.at += len(word)
		return word, nil
	}
	start := p.at - 1
	var value strings.Builder
	for {
		end := strings.IndexByte(p.text[p.at:], '\'')
		if end < 0 {
			p.at = start
			return "", p.wrong("a quote without its end: give another '")
		}
		value.WriteString(p.text[p.at : p.at+end])
		p.at += end + 1
		if !strings.HasPrefix(p.text[p.at:], "'") {
			return value.String(), nil
		}
		value.WriteByte('\'')
		p.at++
	}
}

func (p *whereParser) list() (values []string, err error) {
	if !p.take("(") {
		return nil, p.wrong("found %s: give values in brackets, for example (Succeeded, Failed)", p.found())
	}
	for {
		value, err := p.value()
		if err != nil {
			return nil, err
		}
		values = append(values, value)
		switch {
		case p.take(","):
		case p.take(")"):
			return values, nil
		default:
			return nil, p.wrong("found %s: give a comma or )", p.found())
		}
	}
}
