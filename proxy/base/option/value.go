package option

import (
	"errors"
	"log/slog"
	"math"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/api/resource"
)

// The types of flag values that package pflag does not have.

// sizeValue is a number of bytes, spelled as a Kubernetes quantity.
type sizeValue int64

func (v *sizeValue) Type() string { return "bytes" }

func (v *sizeValue) String() string {
	return resource.NewQuantity(int64(*v), resource.BinarySI).String()
}

func (v *sizeValue) Set(s string) error {
	n, err := ParseSize(s)
	*v = sizeValue(n)
	return err
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

// listValue is a comma-separated list. A flag that is given again adds to it.
type listValue []string

func (v *listValue) Type() string   { return "strings" }
func (v *listValue) String() string { return strings.Join(*v, ",") }

func (v *listValue) Set(s string) error {
	for name := range strings.SplitSeq(s, ",") {
		if name = strings.TrimSpace(name); name != "" {
			*v = append(*v, name)
		}
	}
	return nil
}

// levelValue is --log-level.
type levelValue slog.Level

func (v *levelValue) Type() string   { return "level" }
func (v *levelValue) String() string { return strings.ToLower(slog.Level(*v).String()) }

func (v *levelValue) Set(s string) error {
	if (*slog.Level)(v).UnmarshalText([]byte(s)) != nil {
		return errors.New("give debug, info, warn or error")
	}
	return nil
}

// MaxVerbosity is the verbosity of debug. -v takes greater numbers for this one: at those,
// client-go would log URLs, headers and objects.
const MaxVerbosity = -int(slog.LevelDebug)

// verbosityValue is -v. Kubernetes' components number the levels that slog names: 0 is info and 4
// is debug. Package logr converts them in the same way: client-go's lines of verbosity 2 have level
// -2 here.
type verbosityValue slog.Level

func (v *verbosityValue) Type() string { return "number" }

func (v *verbosityValue) String() string {
	if *v >= 0 {
		return ""
	}
	return strconv.Itoa(-int(*v))
}

func (v *verbosityValue) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return errors.New("give a number, 0 for info to 4 for debug")
	}
	*v = verbosityValue(-min(n, MaxVerbosity))
	return nil
}

const wantBytes = "give bytes as 67108864, 64Mi or 1Gi, less than 8Ei"

// want returns a type of flags in words, and its YAML tags in the configuration file. The words for a
// string are "".
func want(flagType string) (text string, tags []string) {
	switch flagType {
	case "bool":
		return "give true or false", []string{"!!bool"}
	case "int":
		return "give a whole number", []string{"!!int"}
	case "bytes":
		return wantBytes, []string{"!!int", "!!str"}
	case "duration":
		return "give a duration as 30s or 10m", []string{"!!str"}
	}
	return "", []string{"!!str"}
}
