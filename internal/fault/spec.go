package fault

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

const (
	// HeldMaxDefault bounds what a direction holds back of late frames, and again of overtaken
	// ones.
	HeldMaxDefault    = 1024
	reorderByDefault  = 3
	reorderForDefault = int64(time.Millisecond)
	stallForDefault   = int64(time.Millisecond)
	// delayMax keeps sums of a clock, a delay and a jitter far from overflow.
	delayMax = int64(time.Hour)
)

// Faults of one direction. Probabilities are 0 to 1, per frame; times are nanoseconds.
type Faults struct {
	Drop      float64
	Duplicate float64 // the copy goes right after the frame
	// the frame is held until ReorderBy later ones have gone by, or ReorderFor is over
	Reorder float64
	Corrupt float64 // one to three bits anywhere in the frame are flipped; of ARP nothing is left
	// two different 16-bit words of the TCP payload change places: the TCP checksum still matches
	Swap     float64
	Truncate float64 // the frame's end is cut off, its Ethernet header stays

	ReorderBy  int   // 3 by default
	ReorderFor int64 // 1 ms by default
	Delay      int64 // every frame
	Jitter     int64 // on top of Delay, even in [0, Jitter); a queue's, so it does not reorder

	// A slow device, each queue for itself. It takes, or gives, fewer frames than it is asked for, and
	// loses none.
	Rate      int64   // bits a second on the link; 0: any
	FrameRate int64   // frames a second; 0: any
	PerCall   int     // frames a call at most; 0: any
	Stall     float64 // probability that it begins to stand still, per call with frames
	StallFor  int64   // for so long at most, even in (0, StallFor]; 1 ms by default
}

// Spec is a faulty port.
type Spec struct {
	Seed    uint64 // the same seed and the same calls give the same faults
	HeldMax int    // HeldMaxDefault when 0
	Rx, Tx  Faults
}

// field is one key of the command line.
type field struct {
	key  string
	prob func(*Faults) *float64
	ns   func(*Faults) *int64
	n    func(*Faults) *int
	rate func(*Faults) *int64
	unit string // of rate
}

// fields, in the order in which String writes them.
var fields = []field{
	{key: "drop", prob: func(f *Faults) *float64 { return &f.Drop }},
	{key: "dup", prob: func(f *Faults) *float64 { return &f.Duplicate }},
	{key: "reorder", prob: func(f *Faults) *float64 { return &f.Reorder }},
	{key: "reorder-by", n: func(f *Faults) *int { return &f.ReorderBy }},
	{key: "reorder-for", ns: func(f *Faults) *int64 { return &f.ReorderFor }},
	{key: "corrupt", prob: func(f *Faults) *float64 { return &f.Corrupt }},
	{key: "swap", prob: func(f *Faults) *float64 { return &f.Swap }},
	{key: "truncate", prob: func(f *Faults) *float64 { return &f.Truncate }},
	{key: "delay", ns: func(f *Faults) *int64 { return &f.Delay }},
	{key: "jitter", ns: func(f *Faults) *int64 { return &f.Jitter }},
	{key: "rate", unit: "bit", rate: func(f *Faults) *int64 { return &f.Rate }},
	{key: "frames", unit: "/s", rate: func(f *Faults) *int64 { return &f.FrameRate }},
	{key: "per-call", n: func(f *Faults) *int { return &f.PerCall }},
	{key: "stall", prob: func(f *Faults) *float64 { return &f.Stall }},
	{key: "stall-for", ns: func(f *Faults) *int64 { return &f.StallFor }},
}

func fieldOf(key string) *field {
	for i := range fields {
		if fields[i].key == key {
			return &fields[i]
		}
	}
	return nil
}

func keys() string {
	var b strings.Builder
	for _, f := range fields {
		b.WriteString(f.key)
		b.WriteString(", ")
	}
	return b.String() + "held, seed"
}

// Parse reads a Spec as an operator writes it: drop=1%,reorder=0.01,delay=1ms,jitter=200us,seed=7.
// A key holds for both directions, or for one with rx. or tx. before it; of two that meet, the
// later one counts; the same one twice is an error. Keys are drop, dup, reorder, reorder-by
// (frames), reorder-for, corrupt, swap, truncate, delay, jitter, rate (1Gbit, of a second), frames
// (10k/s), per-call (frames), stall, stall-for, seed, and held (frames).
func Parse(s string) (Spec, error) {
	var spec Spec
	given := map[string]bool{}
	for item := range strings.SplitSeq(s, ",") {
		item = strings.TrimSpace(item)
		if item == "" {
			continue
		}
		key, value, ok := strings.Cut(item, "=")
		if !ok || value == "" {
			return Spec{}, fmt.Errorf("fault: %q: write key=value, such as drop=1%%", item)
		}
		if given[key] {
			return Spec{}, fmt.Errorf("fault: %q: %s is given twice", item, key)
		}
		given[key] = true
		if err := spec.set(key, value); err != nil {
			return Spec{}, fmt.Errorf("fault: %q: %w", item, err)
		}
	}
	return spec, nil
}

func (s *Spec) set(key, value string) error {
	switch key {
	case "seed":
		seed, err := strconv.ParseUint(value, 0, 64)
		if err != nil {
			return errors.New("a seed is a whole number from 0 to 2^64-1")
		}
		s.Seed = seed
		return nil
	case "held":
		n, err := parseCount(value)
		s.HeldMax = n
		return err
	}
	name, rx := strings.CutPrefix(key, "rx.")
	tx := false
	if !rx {
		name, tx = strings.CutPrefix(key, "tx.")
	}
	f := fieldOf(name)
	if f == nil {
		return fmt.Errorf("no such key; the keys are %s, with rx. or tx. before all but the last two "+
			"for one direction", keys())
	}
	if !tx {
		if err := f.parse(&s.Rx, value); err != nil {
			return err
		}
	}
	if !rx {
		return f.parse(&s.Tx, value)
	}
	return nil
}

func (f *field) parse(to *Faults, value string) (err error) {
	switch {
	case f.prob != nil:
		*f.prob(to), err = parseProbability(value)
	case f.ns != nil:
		*f.ns(to), err = parseTime(value)
	case f.rate != nil:
		*f.rate(to), err = parseRate(value, f.unit)
	default:
		*f.n(to), err = parseCount(value)
	}
	return err
}

func parseProbability(s string) (float64, error) {
	digits, percent := strings.CutSuffix(s, "%")
	p, err := strconv.ParseFloat(digits, 64)
	if percent {
		p /= 100
	}
	if err != nil || !isProbability(p) {
		return 0, errors.New("a probability is 0% to 100%, or 0 to 1")
	}
	return p, nil
}

// isProbability is false for NaN too.
func isProbability(p float64) bool { return p >= 0 && p <= 1 }

func parseTime(s string) (int64, error) {
	d, err := time.ParseDuration(s)
	if err != nil {
		return 0, errors.New("a time has a unit: 200us, 1ms, 1.5s")
	}
	if d < 0 || int64(d) > delayMax {
		return 0, fmt.Errorf("a time is 0 to %v", time.Duration(delayMax))
	}
	return int64(d), nil
}

// rateMax is a Tbit, or frame, a second: costs in nanoseconds stay far from overflow. rateMin has
// the longest frame take some minutes.
const (
	rateMin = 1000
	rateMax = 1_000_000_000_000
)

var ratePrefixes = []struct {
	letter string
	factor float64
}{{"k", 1e3}, {"M", 1e6}, {"G", 1e9}, {"", 1}}

func parseRate(s, unit string) (int64, error) {
	wrong := fmt.Errorf("a rate is 1k%s to 1000G%s, with k, M or G: 2.5G%s", unit, unit, unit)
	digits, ok := strings.CutSuffix(s, unit)
	if !ok {
		return 0, wrong
	}
	for _, p := range ratePrefixes {
		number, has := strings.CutSuffix(digits, p.letter)
		if !has {
			continue
		}
		x, err := strconv.ParseFloat(number, 64)
		if x *= p.factor; err != nil || !(x >= rateMin && x <= rateMax) {
			return 0, wrong
		}
		return int64(x), nil
	}
	return 0, wrong
}

func formatRate(v int64, unit string) string {
	for _, p := range []int{2, 1, 0} {
		if f := int64(ratePrefixes[p].factor); v%f == 0 {
			return strconv.FormatInt(v/f, 10) + ratePrefixes[p].letter + unit
		}
	}
	return strconv.FormatInt(v, 10) + unit
}

// countMax bounds reorder-by and held.
const countMax = 1 << 20

func parseCount(s string) (int, error) {
	n, err := strconv.Atoi(s)
	if err != nil || n < 1 || n > countMax {
		return 0, fmt.Errorf("a number of frames is 1 to %d", countMax)
	}
	return n, nil
}

// String is the Spec as Parse reads it, defaults left out.
func (s Spec) String() string {
	var parts []string
	for _, f := range fields {
		rx, tx := f.format(&s.Rx), f.format(&s.Tx)
		switch {
		case rx == tx && rx != "":
			parts = append(parts, f.key+"="+rx)
		default:
			if rx != "" {
				parts = append(parts, "rx."+f.key+"="+rx)
			}
			if tx != "" {
				parts = append(parts, "tx."+f.key+"="+tx)
			}
		}
	}
	if s.HeldMax != 0 {
		parts = append(parts, "held="+strconv.Itoa(s.HeldMax))
	}
	if s.Seed != 0 {
		parts = append(parts, "seed="+strconv.FormatUint(s.Seed, 10))
	}
	return strings.Join(parts, ",")
}

// format is "" for the zero value.
func (f *field) format(of *Faults) string {
	switch {
	case f.prob != nil && *f.prob(of) != 0:
		return strconv.FormatFloat(*f.prob(of), 'g', -1, 64)
	case f.ns != nil && *f.ns(of) != 0:
		return time.Duration(*f.ns(of)).String()
	case f.n != nil && *f.n(of) != 0:
		return strconv.Itoa(*f.n(of))
	case f.rate != nil && *f.rate(of) != 0:
		return formatRate(*f.rate(of), f.unit)
	}
	return ""
}

// check is for Specs that did not come from Parse.
func (s Spec) check() error {
	if s.HeldMax < 0 || s.HeldMax > countMax {
		return fmt.Errorf("fault: held is %d; must be 0 (default) to %d", s.HeldMax, countMax)
	}
	for _, dir := range []struct {
		name string
		f    Faults
	}{{"rx", s.Rx}, {"tx", s.Tx}} {
		for _, f := range fields {
			switch {
			case f.prob != nil && !isProbability(*f.prob(&dir.f)):
				return fmt.Errorf("fault: %s.%s is %v; a probability is 0 to 1", dir.name, f.key,
					*f.prob(&dir.f))
			case f.ns != nil && (*f.ns(&dir.f) < 0 || *f.ns(&dir.f) > delayMax):
				return fmt.Errorf("fault: %s.%s is %d ns; a time is 0 to %d ns", dir.name, f.key,
					*f.ns(&dir.f), delayMax)
			case f.rate != nil && *f.rate(&dir.f) != 0 &&
				(*f.rate(&dir.f) < rateMin || *f.rate(&dir.f) > rateMax):
				return fmt.Errorf("fault: %s.%s is %d a second; must be 0 (any), or %d to %d", dir.name, f.key,
					*f.rate(&dir.f), rateMin, rateMax)
			case f.n != nil && (*f.n(&dir.f) < 0 || *f.n(&dir.f) > countMax):
				return fmt.Errorf("fault: %s.%s is %d; must be 0 (default) to %d", dir.name, f.key,
					*f.n(&dir.f), countMax)
			}
		}
	}
	return nil
}

// filled puts defaults where there is zero.
func (f Faults) filled() Faults {
	if f.ReorderBy == 0 {
		f.ReorderBy = reorderByDefault
	}
	if f.ReorderFor == 0 {
		f.ReorderFor = reorderForDefault
	}
	if f.StallFor == 0 {
		f.StallFor = stallForDefault
	}
	return f
}
