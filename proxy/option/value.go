package option

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/resource"
)

// The types of flag values. Package flag has most of them, but only bound to a FlagSet.

type stringValue string

func (v *stringValue) Get() any       { return string(*v) }
func (v *stringValue) String() string { return string(*v) }

func (v *stringValue) Set(s string) error {
	*v = stringValue(s)
	return nil
}

type boolValue bool

func (v *boolValue) Get() any         { return bool(*v) }
func (v *boolValue) String() string   { return strconv.FormatBool(bool(*v)) }
func (v *boolValue) IsBoolFlag() bool { return true }

func (v *boolValue) Set(s string) error {
	b, err := strconv.ParseBool(s)
	if err != nil {
		return errors.New(wantBool)
	}
	*v = boolValue(b)
	return nil
}

type intValue int

func (v *intValue) Get() any       { return int(*v) }
func (v *intValue) String() string { return strconv.Itoa(int(*v)) }

func (v *intValue) Set(s string) error {
	n, err := strconv.ParseInt(s, 0, strconv.IntSize)
	if err != nil {
		return errors.New(wantInt)
	}
	*v = intValue(n)
	return nil
}

type durationValue time.Duration

func (v *durationValue) Get() any { return time.Duration(*v) }

// String returns the duration as people write it: 10m, where time.Duration has 10m0s.
func (v *durationValue) String() string {
	text := time.Duration(*v).String()
	if strings.HasSuffix(text, "m0s") {
		text = strings.TrimSuffix(text, "0s")
	}
	if strings.HasSuffix(text, "h0m") {
		text = strings.TrimSuffix(text, "0m")
	}
	return text
}

func (v *durationValue) Set(s string) error {
	d, err := ParseDuration(s)
	if err != nil {
		return err
	}
	*v = durationValue(d)
	return nil
}

// ParseDuration is time.ParseDuration with an error that says what to give.
func ParseDuration(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, fmt.Errorf("%s%s", wantDuration, meant(s))
	}
	return d, nil
}

// meant guesses the intended duration of a number without a unit.
func meant(s string) string {
	if _, err := strconv.Atoi(s); err != nil {
		return ""
	}
	return "; for seconds say " + s + "s"
}

// sizeValue is a number of bytes, spelled as a Kubernetes quantity.
type sizeValue int64

func (v *sizeValue) Get() any { return int64(*v) }

func (v *sizeValue) String() string {
	return resource.NewQuantity(int64(*v), resource.BinarySI).String()
}

func (v *sizeValue) Set(s string) error {
	n, err := ParseSize(s)
	if err != nil {
		return err
	}
	*v = sizeValue(n)
	return nil
}

// ParseSize reads a number of bytes, spelled as a Kubernetes quantity. It accepts no exponent of more
// than two digits: package resource computes with as many digits as an exponent says.
func ParseSize(s string) (int64, error) {
	if longExponent.MatchString(s) {
		return 0, errors.New(wantBytes)
	}
	q, err := resource.ParseQuantity(s)
	if err != nil || q.CmpInt64(math.MaxInt64) > 0 || q.CmpInt64(-math.MaxInt64) < 0 {
		return 0, errors.New(wantBytes)
	}
	return q.Value(), nil
}

var longExponent = regexp.MustCompile(`[eE][+-]?[0-9]{3}`)

// listValue is a comma-separated list. The first time it is given, it replaces the values. After
// that, it adds to them.
type listValue struct {
	values *[]string
	given  bool
}

func (v *listValue) Get() any       { return slices.Clone(*v.values) }
func (v *listValue) String() string { return strings.Join(*v.values, ",") }

func (v *listValue) Set(s string) error {
	if !v.given {
		*v.values, v.given = nil, true
	}
	for name := range strings.SplitSeq(s, ",") {
		if name = strings.TrimSpace(name); name != "" {
			*v.values = append(*v.values, name)
		}
	}
	return nil
}

// forget makes the next Set replace the values.
func (v *listValue) forget() { v.given = false }

// levelValue is --log-level. It shares its level with -v.
type levelValue struct {
	level *slog.Level
	from  string // the flag that has set the level; empty: none
}

func (v *levelValue) Get() any       { return v.level.String() }
func (v *levelValue) String() string { return strings.ToLower(v.level.String()) }

func (v *levelValue) Set(s string) error {
	var level slog.Level
	if level.UnmarshalText([]byte(s)) != nil {
		return errors.New("give debug, info, warn or error")
	}
	return v.set("--log-level="+s, level)
}

// set sets the level by the flag from. The same flag may be given again. The other flag may be
// given only if it agrees.
func (v *levelValue) set(from string, level slog.Level) error {
	name, _, _ := strings.Cut(from, "=")
	if v.from != "" && !strings.HasPrefix(v.from, name+"=") && level != *v.level {
		return fmt.Errorf("conflicts with %s: give one of them", v.from)
	}
	*v.level, v.from = level, from
	return nil
}

// forget makes the next Set win, also over the other flag.
func (v *levelValue) forget() { v.from = "" }

// MaxVerbosity is the verbosity of debug. -v takes greater numbers for this one: at those,
// client-go would log URLs, headers and objects.
const MaxVerbosity = -int(slog.LevelDebug)

// verbosityValue is -v. Kubernetes' components number the levels that slog names: 0 is info and 4
// is debug. Package logr converts them in the same way: client-go's lines of verbosity 2 have level
// -2 here.
type verbosityValue levelValue

func (v *verbosityValue) Get() any { return -int(*v.level) }

func (v *verbosityValue) String() string {
	if *v.level >= 0 {
		return ""
	}
	return strconv.Itoa(-int(*v.level))
}

func (v *verbosityValue) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return errors.New("give a number, 0 for info to 4 for debug")
	}
	return (*levelValue)(v).set("-v="+s, slog.Level(-min(n, MaxVerbosity)))
}

const (
	wantBool     = "give true or false"
	wantInt      = "give a whole number"
	wantBytes    = "give bytes as 67108864, 64Mi or 1Gi, less than 8Ei"
	wantDuration = "give a duration as 30s or 10m"
)

// want returns the type of a field of the configuration file, in words, and its YAML tags. The
// words for a string are "".
func want(v flag.Getter) (text string, tags []string) {
	switch v.(type) {
	case *boolValue:
		return wantBool, []string{"!!bool"}
	case *intValue:
		return wantInt, []string{"!!int"}
	case *sizeValue:
		return wantBytes, []string{"!!int", "!!str"}
	case *durationValue:
		return wantDuration, []string{"!!str"}
	}
	return "", []string{"!!str"}
}
