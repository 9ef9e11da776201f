package option

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// AtLeast checks that a number is not smaller than least.
func AtLeast[T int | int64](least T) Check[T] {
	return func(v T) string { return unless(v >= least, "is too small: give at least %d", least) }
}

// Positive checks that a duration is longer than 0.
func Positive(d time.Duration) string { return unless(d > 0, tooShort) }

// NotNegative checks that a duration is 0 or longer.
func NotNegative(d time.Duration) string { return unless(d >= 0, tooShort) }

const tooShort = "is too short: give a positive duration, for example 30s"

// Within checks that a duration is between two others, both included.
func Within(least, most time.Duration) Check[time.Duration] {
	return func(d time.Duration) string {
		return cmp.Or(
			unless(d >= 0, tooShort),
			unless(d >= least, "is too short: give at least %s", least),
			unless(d <= most, "is too long: give at most %s", most))
	}
}

// OneOf checks that a string is one of values.
func OneOf(values ...string) Check[string] {
	return func(s string) string {
		last := len(values) - 1
		return unless(slices.Contains(values, s), "is unknown: give %s or %s", strings.Join(values[:last], ", "), values[last])
	}
}

// Like checks that a string matches a pattern. wrong says what is wrong with a string that does
// not.
func Like(pattern *regexp.Regexp, wrong string) Check[string] {
	return func(s string) string { return unless(pattern.MatchString(s), "%s", wrong) }
}

// unless returns "" for a right value, and else what is wrong.
func unless(right bool, wrong string, args ...any) string {
	if right {
		return ""
	}
	return fmt.Sprintf(wrong, args...)
}
