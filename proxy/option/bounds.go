package option

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// AtLeast is the check of a number that has a least value.
func AtLeast[T int | int64](least T) Check[T] {
	return func(v T) string { return unless(v >= least, "is too small: give at least %d", least) }
}

// Positive is the check of a duration that may not be 0.
func Positive(d time.Duration) string { return unless(d > 0, tooShort) }

// NotNegative is the check of a duration that may be 0.
func NotNegative(d time.Duration) string { return unless(d >= 0, tooShort) }

const tooShort = "is too short: give a positive duration, for example 30s"

// Within is the check of a duration between two others, both included.
func Within(least, most time.Duration) Check[time.Duration] {
	return func(d time.Duration) string {
		return cmp.Or(
			unless(d >= 0, tooShort),
			unless(d >= least, "is too short: give at least %s", least),
			unless(d <= most, "is too long: give at most %s", most))
	}
}

// OneOf is the check of a string that is one of a few.
func OneOf(values ...string) Check[string] {
	return func(s string) string {
		last := len(values) - 1
		return unless(slices.Contains(values, s), "is unknown: give %s or %s", strings.Join(values[:last], ", "), values[last])
	}
}

// Like is the check of a string that has to match, with what is wrong with others.
func Like(pattern *regexp.Regexp, wrong string) Check[string] {
	return func(s string) string { return unless(pattern.MatchString(s), "%s", wrong) }
}

// unless returns what is wrong if a value is not right.
func unless(right bool, wrong string, args ...any) string {
	if right {
		return ""
	}
	return fmt.Sprintf(wrong, args...)
}
