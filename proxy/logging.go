package proxy

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"strings"

	"k8s.io/klog/v2"
)

// maxVerbosity is the most that -v asks of client-go: above it, client-go logs URLs, headers and objects.
const maxVerbosity = -int(slog.LevelDebug)

// NewLogger returns the log that o asks for, written to w: constant sentences, with keys and values. It is client-go's log from then on.
func (o *Options) NewLogger(w io.Writer) *slog.Logger {
	options := &slog.HandlerOptions{Level: o.LogLevel}
	var handler slog.Handler = slog.NewTextHandler(w, options)
	if o.LogFormat == "json" {
		options.ReplaceAttr = func(_ []string, a slog.Attr) slog.Attr {
			if a.Value.Kind() == slog.KindDuration { // else a number of nanoseconds
				a.Value = slog.StringValue(a.Value.Duration().String())
			}
			return a
		}
		handler = slog.NewJSONHandler(w, options)
	}
	log := slog.New(handler)

	klog.SetSlogLogger(log)
	var gate klog.Level
	_ = gate.Set(strconv.Itoa(min(max(-int(o.LogLevel), 0), maxVerbosity))) // klog's own, which every klog.V asks; a number is no error
	return log
}

// levelValue is --log-level. It shares its level with -v.
type levelValue struct {
	level *slog.Level
	from  string // the flag that has set the level; empty: none
}

func (v *levelValue) Get() any { return v.level.String() }

func (v *levelValue) String() string {
	if v.level == nil {
		return ""
	}
	return strings.ToLower(v.level.String())
}

func (v *levelValue) Set(s string) error {
	var level slog.Level
	if level.UnmarshalText([]byte(s)) != nil {
		return errors.New("give debug, info, warn or error")
	}
	return v.set("--log-level="+s, level)
}

// set sets the level as the flag from says. The same flag may be given again, the other one only if it agrees.
func (v *levelValue) set(from string, level slog.Level) error {
	name, _, _ := strings.Cut(from, "=")
	if v.from != "" && !strings.HasPrefix(v.from, name+"=") && level != *v.level {
		return fmt.Errorf("conflicts with %s: give one of them", v.from)
	}
	*v.level, v.from = level, from
	return nil
}

// verbosityValue is -v, by which Kubernetes' components number what slog names: 0 is info, 4 debug. Package logr converts the one to the other
// in the same way, so that client-go's lines of verbosity 2 are at level -2 here.
type verbosityValue levelValue

var _ flag.Getter = (*verbosityValue)(nil)

func (v *verbosityValue) Get() any { return -int(*v.level) }

func (v *verbosityValue) String() string {
	if v.level == nil || *v.level >= 0 {
		return ""
	}
	return strconv.Itoa(-int(*v.level))
}

func (v *verbosityValue) Set(s string) error {
	n, err := strconv.Atoi(s)
	if err != nil || n < 0 {
		return errors.New("give a number, 0 for info to 4 for debug")
	}
	return (*levelValue)(v).set("-v="+s, slog.Level(-min(n, maxVerbosity)))
}
