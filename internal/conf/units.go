package conf

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Duration is written as Go writes one: 500ms, 10s, 1m30s.
type Duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *Duration) UnmarshalText(text []byte) error {
	v, err := time.ParseDuration(string(text))
	if err != nil || v < 0 {
		return fmt.Errorf("%q is no duration; write 500ms, 10s or 1m30s", text)
	}
	*d = Duration(v)
	return nil
}

func (d Duration) String() string { return time.Duration(d).String() }

// Size is in octets: 4096, 64KiB, 1.5GiB.
type Size int64

var units = []struct {
	name   string
	octets int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}, {"K", 1 << 10},
	{"M", 1 << 20}, {"G", 1 << 30}, {"T", 1 << 40}}

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Size) UnmarshalText(text []byte) error {
	num, unit := string(text), int64(1)
	for _, u := range units {
		if n, ok := strings.CutSuffix(num, u.name); ok {
			num, unit = n, u.octets
			break
		}
	}
	wrong := fmt.Errorf("%q is no size; write 4096, \"64KiB\", \"256MiB\" or \"1.5GiB\"", text)
	if v, err := strconv.ParseUint(num, 10, 63); err == nil {
		if v > uint64(math.MaxInt64/unit) {
			return wrong
		}
		*s = Size(int64(v) * unit)
		return nil
	}
	v, err := strconv.ParseFloat(num, 64)
	if err != nil || unit == 1 || v < 0 || !strings.Contains(num, ".") ||
		strings.ContainsAny(num, "eExXpP_+") || v*float64(unit) >= math.MaxInt64 {
		return wrong
	}
	*s = Size(v * float64(unit))
	return nil
}

// Count is a number with its noun, in the plural unless it is one.
func Count(n int, noun string) string {
	if n != 1 {
		noun += "s"
	}
	return fmt.Sprintf("%d %s", n, noun)
}

func (s Size) String() string {
	for i := 3; i >= 0; i-- {
		if u := units[i]; s >= Size(u.octets) && int64(s)%u.octets == 0 {
			return fmt.Sprintf("%d%s", int64(s)/u.octets, u.name)
		}
	}
	return strconv.FormatInt(int64(s), 10)
}
