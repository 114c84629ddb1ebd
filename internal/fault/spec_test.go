package fault

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestParse(t *testing.T) {
	both := func(f Faults) Spec { return Spec{Rx: f, Tx: f} }
	for text, want := range map[string]Spec{
		"":                     {},
		" , ":                  {},
		"drop=1%":              both(Faults{Drop: 0.01}),
		"drop=0.25":            both(Faults{Drop: 0.25}),
		"drop=100%,dup=1":      both(Faults{Drop: 1, Duplicate: 1}),
		"rx.drop=1%":           {Rx: Faults{Drop: 0.01}},
		"drop=1%,tx.drop=2%":   {Rx: Faults{Drop: 0.01}, Tx: Faults{Drop: 0.02}},
		"tx.drop=2%, drop=1%":  both(Faults{Drop: 0.01}),
		"seed=0x10,held=64":    {Seed: 16, HeldMax: 64},
		"tx.reorder-by=7":      {Tx: Faults{ReorderBy: 7}},
		"reorder-for=1.5s":     both(Faults{ReorderFor: int64(1500 * time.Millisecond)}),
		"swap=1e-3,truncate=0": both(Faults{Swap: 0.001}),
		"rate=2.5Gbit,tx.per-call=4": {Rx: Faults{Rate: 2_500_000_000},
			Tx: Faults{Rate: 2_500_000_000, PerCall: 4}},
		"frames=1500/s,rx.rate=10kbit": {Rx: Faults{FrameRate: 1500, Rate: 10_000},
			Tx: Faults{FrameRate: 1500}},
		"tx.stall=0.1%,tx.stall-for=5ms": {Tx: Faults{Stall: 0.001, StallFor: 5_000_000}},
		"drop=1%,reorder=1%,dup=0.5%,corrupt=0.1%,delay=1ms,jitter=200us,seed=7": {Seed: 7,
			Rx: Faults{Drop: 0.01, Reorder: 0.01, Duplicate: 0.005, Corrupt: 0.001, Delay: 1e6, Jitter: 2e5},
			Tx: Faults{Drop: 0.01, Reorder: 0.01, Duplicate: 0.005, Corrupt: 0.001, Delay: 1e6,
				Jitter: 2e5}},
	} {
		got, err := Parse(text)
		require.NoError(t, err, text)
		require.Equal(t, want, got, text)
		again, err := Parse(got.String())
		require.NoError(t, err, got.String())
		require.Equal(t, want, again, got.String())
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"drop":              `fault: "drop": write key=value, such as drop=1%`,
		"drop=":             `fault: "drop=": write key=value, such as drop=1%`,
		"drop=101%":         `fault: "drop=101%": a probability is 0% to 100%, or 0 to 1`,
		"drop=2":            `fault: "drop=2": a probability is 0% to 100%, or 0 to 1`,
		"drop=-1%":          `fault: "drop=-1%": a probability is 0% to 100%, or 0 to 1`,
		"drop=NaN":          `fault: "drop=NaN": a probability is 0% to 100%, or 0 to 1`,
		"delay=5":           `fault: "delay=5": a time has a unit: 200us, 1ms, 1.5s`,
		"delay=-1ms":        `fault: "delay=-1ms": a time is 0 to 1h0m0s`,
		"jitter=2h":         `fault: "jitter=2h": a time is 0 to 1h0m0s`,
		"reorder-by=0":      `fault: "reorder-by=0": a number of frames is 1 to 1048576`,
		"held=-1":           `fault: "held=-1": a number of frames is 1 to 1048576`,
		"seed=-1":           `fault: "seed=-1": a seed is a whole number from 0 to 2^64-1`,
		"rx.seed=1":         `fault: "rx.seed=1": no such key`,
		"rx.tx.drop=1%":     `fault: "rx.tx.drop=1%": no such key`,
		"drop=1%,lose=1%":   `fault: "lose=1%": no such key; the keys are drop, dup, reorder, reorder-by, reorder-for, corrupt, swap, truncate, delay, jitter, rate, frames, per-call, stall, stall-for, held, seed`,
		"rate=1G":           `fault: "rate=1G": a rate is 1kbit to 1000Gbit, with k, M or G: 2.5Gbit`,
		"rate=2Tbit":        `fault: "rate=2Tbit": a rate is 1kbit`,
		"rate=1bit":         `fault: "rate=1bit": a rate is 1kbit`,
		"rate=NaNbit":       `fault: "rate=NaNbit": a rate is 1kbit`,
		"frames=1k":         `fault: "frames=1k": a rate is 1k/s to 1000G/s`,
		"per-call=0":        `fault: "per-call=0": a number of frames`,
		"drop=1% reorder=1": `fault: "drop=1% reorder=1": a probability`,
	} {
		_, err := Parse(text)
		require.ErrorContains(t, err, want, text)
	}
}

func TestSpecChecked(t *testing.T) {
	for want, spec := range map[string]Spec{
		"fault: rx.drop is 1.5; a probability is 0 to 1":             {Rx: Faults{Drop: 1.5}},
		"fault: tx.corrupt is NaN; a probability is 0 to 1":          {Tx: Faults{Corrupt: math.NaN()}},
		"fault: tx.delay is -1 ns; a time is 0 to 3600000000000 ns":  {Tx: Faults{Delay: -1}},
		"fault: rx.reorder-by is -1; must be 0 (default) to 1048576": {Rx: Faults{ReorderBy: -1}},
		"fault: held is -1; must be 0 (default) to 1048576":          {HeldMax: -1},
	} {
		_, err := Wrap(nil, nil, spec, nil)
		require.EqualError(t, err, want)
	}
}

func FuzzParse(f *testing.F) {
	f.Add("drop=1%,reorder=1%,dup=0.5%,corrupt=0.1%,delay=1ms,jitter=200us,seed=7")
	f.Add("rx.swap=1e-9,tx.truncate=33.3%,reorder-by=9,tx.reorder-for=1h,held=12")
	f.Fuzz(func(t *testing.T, text string) {
		spec, err := Parse(text)
		if err != nil {
			if !strings.HasPrefix(err.Error(), "fault: ") {
				t.Fatalf("%q: error without the package's name: %v", text, err)
			}
			return
		}
		if err := spec.check(); err != nil {
			t.Fatalf("%q: parsed, but: %v", text, err)
		}
		if again, err := Parse(spec.String()); err != nil || again != spec {
			t.Fatalf("%q: %v became %v, %v", text, spec, again, err)
		}
	})
}
