package main

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// size is a flag value in octets: 4096, 64KiB, 256MiB, 1.5GiB, 1TiB (K, M, G and T are the same
// binary units).
type size int64

func (s *size) Type() string { return "size" }

func (s size) String() string {
	for _, u := range sizeUnits {
		if s >= size(u.n) && int64(s)%u.n == 0 {
			return fmt.Sprintf("%d%s", int64(s)/u.n, u.names[0])
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

var sizeUnits = []struct {
	n     int64
	names []string
}{
	{1 << 40, []string{"TiB", "T", "t"}},
	{1 << 30, []string{"GiB", "G", "g"}},
	{1 << 20, []string{"MiB", "M", "m"}},
	{1 << 10, []string{"KiB", "K", "k"}},
}

func (s *size) Set(text string) error {
	num, unit := text, int64(1)
find:
	for _, u := range sizeUnits {
		for _, name := range u.names {
			if n, ok := strings.CutSuffix(text, name); ok {
				num, unit = n, u.n
				break find
			}
		}
	}
	v, ok := multiply(num, unit)
	if !ok {
		return fmt.Errorf("%q is not a size; write 4096, 64KiB, 256MiB, 1.5GiB or 1TiB", text)
	}
	*s = size(v)
	return nil
}

// multiply is num, decimal digits with at most one point in them, times unit, rounded down to
// octets; false where it is too much.
func multiply(num string, unit int64) (int64, bool) {
	whole, part, point := strings.Cut(num, ".")
	v, err := strconv.ParseUint(whole, 10, 63)
	if err != nil || v > uint64(math.MaxInt64/unit) {
		return 0, false
	}
	octets := int64(v) * unit
	if !point {
		return octets, true
	}
	frac, err := strconv.ParseUint(part, 10, 63)
	rest := int64(float64(frac) / math.Pow10(len(part)) * float64(unit))
	if err != nil || len(part) > 15 || unit == 1 || rest > math.MaxInt64-octets {
		return 0, false
	}
	return octets + rest, true
}

// timeSpan is a flag value as iperf3 and perftest have it, in seconds: 2, 0.5; or as everywhere
// here, 500ms.
type timeSpan time.Duration

func (d *timeSpan) Type() string { return "seconds" }

func (d timeSpan) String() string {
	if d == 0 {
		return "0" // which --help does not show
	}
	return time.Duration(d).String()
}

func (d *timeSpan) Set(text string) error {
	if text != "" && strings.Trim(text, "0123456789.") == "" {
		text += "s"
	}
	v, err := time.ParseDuration(text)
	if err != nil {
		return errors.New("want seconds, as 2, or a duration, as 500ms")
	}
	*d = timeSpan(v)
	return nil
}

// octets prints a count for people.
func octets(n uint64) string {
	// Whatever would be rounded up to 1024.0 belongs to the next unit.
	switch f := float64(n); {
	case f >= 1023.95*(1<<20):
		return fmt.Sprintf("%.2f GiB", f/(1<<30))
	case f >= 1023.95*(1<<10):
		return fmt.Sprintf("%.1f MiB", f/(1<<20))
	case n >= 1<<10:
		return fmt.Sprintf("%.1f KiB", f/(1<<10))
	}
	return fmt.Sprintf("%d B", n)
}

func bitrate(bps float64) string {
	switch {
	case bps >= 999.95e6:
		return fmt.Sprintf("%.2f Gbit/s", bps/1e9)
	case bps >= 999.95e3:
		return fmt.Sprintf("%.1f Mbit/s", bps/1e6)
	case bps >= 999.5:
		return fmt.Sprintf("%.1f kbit/s", bps/1e3)
	}
	return fmt.Sprintf("%.0f bit/s", bps)
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.3f s", d.Seconds()) }
