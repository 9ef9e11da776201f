package request

import (
	"errors"
	"fmt"
	"math"
	"regexp"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/sharding"

	"github.com/watchfan/watchfan/fanout"
)

// ShardSelector is the shardSelector of a list or watch (KEP-5866). The zero value is none.
type ShardSelector struct {
	Part fanout.HashRanges // the zero value if there is an error
	// Text is the selector as kube-apiserver repeats it in a list's shardInfo; "" for none.
	Text string
	// Err says why the selector is not understood here. Its words are kube-apiserver's own, except
	// for those about what is no call of shardRange, which kube-apiserver leaves to its parser of
	// CEL.
	Err error
}

// shardRange is a call of shardRange, with its field and its two bounds in quotes. kube-apiserver
// takes any expression of CEL that amounts to such calls. Parentheses, comments and other forms of
// strings are not understood here.
var shardRange = regexp.MustCompile(`^\s*shardRange\s*\(` +
	`\s*([A-Za-z_]\w*(?:\s*\.\s*[A-Za-z_]\w*)*)\s*,` +
	`\s*('[^'"\\\r\n]*'|"[^'"\\\r\n]*")\s*,` +
	`\s*('[^'"\\\r\n]*'|"[^'"\\\r\n]*")\s*\)\s*`)

var (
	errEmptyShard = errors.New("empty shard selector is not allowed; omit the parameter for unfiltered lists")
	errLargeShard = fmt.Errorf("selectors of more than %d bytes, and shard selectors of more than %d ranges, "+
		"are not supported", MaxSelectorBytes, MaxRequirements)
)

// parseShardSelector parses a shardSelector of at most [MaxSelectorBytes]
// (k8s.io/apiserver/pkg/sharding/parser.go). As in kube-apiserver, the first error of the syntax
// comes before all others.
func parseShardSelector(text string) ShardSelector {
	requirements, err := shardCalls(strings.TrimSpace(text))
	if err != nil {
		return ShardSelector{Err: err}
	}
	for _, r := range requirements {
		if err := validCall(r); err != nil {
			return ShardSelector{Err: err}
		}
	}
	ranges := make([]fanout.HashRange, len(requirements))
	for i, r := range requirements {
		if r.Key != requirements[0].Key {
			err := fmt.Errorf("all shard ranges must use the same field, got %q and %q", requirements[0].Key, r.Key)
			return ShardSelector{Err: err}
		}
		ranges[i] = hashRange(r)
	}
	field := fanout.HashedUID
	if requirements[0].Key == hashedNamespace {
		field = fanout.HashedNamespace
	}
	return ShardSelector{
		Part: fanout.NewHashRanges(field, ranges),
		Text: sharding.NewSelector(requirements...).String(),
	}
}

// shardCalls returns the calls in a selector, in their order, not yet validated.
func shardCalls(text string) (calls []sharding.ShardRangeRequirement, err error) {
	if text == "" {
		return nil, errEmptyShard
	}
	for rest := text; ; {
		m := shardRange.FindStringSubmatch(rest)
		if m == nil {
			return nil, fmt.Errorf("expected shardRange(FIELD, 'START', 'END') at byte %d", len(text)-len(rest))
		}
		if len(calls) == MaxRequirements {
			return nil, errLargeShard
		}
		field, start, end := strings.Join(strings.Fields(m[1]), ""), m[2], m[3]
		calls = append(calls, sharding.ShardRangeRequirement{
			Key: field, Start: start[1 : len(start)-1], End: end[1 : len(end)-1],
		})
		if rest = rest[len(m[0]):]; rest == "" {
			return calls, nil
		}
		more, ok := strings.CutPrefix(rest, "||")
		if !ok {
			return nil, fmt.Errorf("expected || at byte %d", len(text)-len(rest))
		}
		rest = more
	}
}

const (
	hashedUID       = "object.metadata.uid"
	hashedNamespace = "object.metadata.namespace"
	// hashesEnd is the bound behind the last hash, 2^64. All others have 16 digits.
	hashesEnd = "0x10000000000000000"
)

// validCall returns an error for a call that kube-apiserver refuses.
func validCall(r sharding.ShardRangeRequirement) error {
	if r.Key != hashedUID && r.Key != hashedNamespace {
		return fmt.Errorf("unsupported field path %q; supported: %s, %s", r.Key, hashedUID, hashedNamespace)
	}
	if err := validHash(r.Start, "hexStart"); err != nil {
		return err
	}
	if err := validHash(r.End, "hexEnd"); err != nil {
		return err
	}
	if !sharding.HexLess(r.Start, r.End) {
		return fmt.Errorf("shard range start %s must be less than end %s", r.Start, r.End)
	}
	return nil
}

// validHash returns an error for a bound that kube-apiserver refuses.
func validHash(bound, name string) error {
	hex, prefixed := strings.CutPrefix(bound, "0x")
	switch {
	case !prefixed:
		return fmt.Errorf("%s must have '0x' prefix, got %q", name, bound)
	case hex == "":
		return fmt.Errorf("%s: hex value is required after '0x'", name)
	case len(hex) > 17:
		return fmt.Errorf("%s: hex value too long (%d chars, max 17): %q", name, len(hex), hex)
	}
	for _, c := range hex {
		if !strings.ContainsRune("0123456789abcdef", c) {
			return fmt.Errorf("%s: invalid hex character %q in %q", name, string(c), bound)
		}
	}
	switch {
	case len(hex) == 17 && bound != hashesEnd:
		return fmt.Errorf("%s: 17-digit hex value must be '%s' (2^64), got %q", name, hashesEnd, bound)
	case len(hex) < 16:
		padded := "0x" + strings.Repeat("0", 16-len(hex)) + hex
		return fmt.Errorf("%s must be a 0x-prefixed 16-digit hex value, got %q (did you mean %q?)", name, bound, padded)
	}
	return nil
}

// hashRange returns the hashes of a valid requirement. Its end is not one of them.
func hashRange(r sharding.ShardRangeRequirement) fanout.HashRange {
	first, _ := strconv.ParseUint(r.Start[2:], 16, 64)
	last := uint64(math.MaxUint64)
	if r.End != hashesEnd {
		end, _ := strconv.ParseUint(r.End[2:], 16, 64)
		last = end - 1
	}
	return fanout.HashRange{First: first, Last: last}
}
