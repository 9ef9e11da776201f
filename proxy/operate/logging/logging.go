package logging

import (
	"io"
	"log/slog"
	"strconv"

	"github.com/watchfan/watchfan/proxy/base/option"
	"k8s.io/klog/v2"
)

// New returns a log of lines from a level on, in a format: text or json. Messages are constant sentences with keys and values.
// client-go uses the same log from then on. Each line has one of the levels DEBUG, INFO, WARN and
// ERROR. A goroutine writes the lines to w, so nothing waits for that. flush, before the process
// ends, waits for it for a second at most.
func New(level slog.Level, format string, w io.Writer) (log *slog.Logger, flush func()) {
	lines := &logLines{w: w}
	options := &slog.HandlerOptions{Level: level, ReplaceAttr: replaceAttr}
	handler := func(to io.Writer) slog.Handler {
		if format == "json" {
			return slog.NewJSONHandler(to, options)
		}
		return slog.NewTextHandler(to, options)
	}
	log, lines.log = slog.New(handler(lines)), slog.New(handler(w))

	klog.SetSlogLogger(log)
	// Set sets klog's own level, which every klog.V checks. It accepts every number.
	var gate klog.Level
	_ = gate.Set(strconv.Itoa(min(max(-int(level), 0), option.MaxVerbosity)))
	return log, lines.flush
}

// replaceAttr writes durations as text, where JSON has a number of nanoseconds by default. It writes
// the levels of client-go's lines, which lie between INFO and DEBUG, as DEBUG and not as DEBUG+3.
func replaceAttr(groups []string, a slog.Attr) slog.Attr {
	if a.Value.Kind() == slog.KindDuration {
		a.Value = slog.StringValue(a.Value.Duration().String())
	}
	if level, ok := a.Value.Any().(slog.Level); ok && len(groups) == 0 && level < slog.LevelInfo {
		a.Value = slog.AnyValue(slog.LevelDebug)
	}
	return a
}
