package main

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestSizeSet(t *testing.T) {
	for text, want := range map[string]size{
		"0": 0, "1": 1, "4096": 4096, "64KiB": 64 << 10, "64K": 64 << 10, "64k": 64 << 10,
		"256MiB": 256 << 20,
		"256M":   256 << 20, "1m": 1 << 20, "1GiB": 1 << 30, "2G": 2 << 30, "3g": 3 << 30,
		"8589934591GiB":       8589934591 << 30,
		"9223372036854775807": math.MaxInt64, "1TiB": 1 << 40, "10T": 10 << 40, "1.5MiB": 3 << 19,
		"0.5k": 512, "2.25TiB": 9 << 38, "1.1G": 1181116006,
	} {
		var s size
		require.NoError(t, s.Set(text), text)
		require.Equal(t, want, s, text)
	}
	for _, text := range []string{
		"", "-1", "-1MiB", "+1", "1.5", "1.0", "1.1234567890123456KiB", "1.", ".5GiB", "1.5.5GiB",
		"1.-5GiB", "GiB", "8388608TiB", "1 MiB", "1MiBMiB", "banana", "0x10", "8589934592GiB",
		"9223372036854775808", "1e6", "1_000",
	} {
		s := size(7)
		require.EqualError(t, s.Set(text),
			`"`+text+`" is not a size; write 4096, 64KiB, 256MiB, 1.5GiB or 1TiB`)
		require.Equal(t, size(7), s, "a refused value changes nothing")
	}
	require.Equal(t, "size", new(size).Type())
}

func TestSizeStringIsReadBack(t *testing.T) {
	require.Equal(t, "256MiB", size(256<<20).String())
	require.Equal(t, "1GiB", size(1<<30).String())
	require.Equal(t, "1025KiB", size(1<<20+1<<10).String())
	require.Equal(t, "10TiB", size(10<<40).String())
	require.Equal(t, "1500", size(1500).String())
	require.Equal(t, "0", size(0).String())
	rapid.Check(t, func(t *rapid.T) {
		want := size(rapid.Int64Range(0, math.MaxInt64).Draw(t, "size") >> rapid.IntRange(0, 40).Draw(
			t, "shift"))
		var got size
		require.NoError(t, got.Set(want.String()))
		require.Equal(t, want, got)
	})
}

func TestOctets(t *testing.T) {
	for n, want := range map[uint64]string{
		0: "0 B", 1: "1 B", 1023: "1023 B", 1024: "1.0 KiB", 1536: "1.5 KiB", 1 << 20: "1.0 MiB",
		64 << 20: "64.0 MiB",
		1 << 30:  "1.00 GiB", 5 << 29: "2.50 GiB", 1 << 40: "1024.00 GiB",
		1<<20 - 1: "1.0 MiB", 1<<30 - 1: "1.00 GiB", // not 1024.0 of the smaller unit
		1<<20 - 100: "1023.9 KiB",
	} {
		require.Equal(t, want, octets(n), "%d", n)
	}
}

func TestBitrate(t *testing.T) {
	for bps, want := range map[float64]string{
		0: "0 bit/s", 999: "999 bit/s", 1500: "1.5 kbit/s", 999_940: "999.9 kbit/s", 1e6: "1.0 Mbit/s",
		1.5e6:   "1.5 Mbit/s",
		940.7e6: "940.7 Mbit/s", 1e9: "1.00 Gbit/s", 25.61e9: "25.61 Gbit/s", 999_960: "1.0 Mbit/s",
		999_960_000: "1.00 Gbit/s",
	} {
		require.Equal(t, want, bitrate(bps), "%v", bps)
	}
}

func TestSeconds(t *testing.T) {
	require.Equal(t, "0.346 s", seconds(346*time.Millisecond))
	require.Equal(t, "61.000 s", seconds(61*time.Second))
	require.Equal(t, "0.000 s", seconds(0))
}

// Times as iperf3 and perftest take them, and as every other flag here does.
func TestTimeSpan(t *testing.T) {
	for text, want := range map[string]time.Duration{"2": 2 * time.Second, "0": 0,
		"0.5": time.Second / 2, "500ms": time.Second / 2, "1m30s": 90 * time.Second,
		"-2s": -2 * time.Second} {
		var d time.Duration
		require.NoError(t, (*timeSpan)(&d).Set(text))
		require.Equal(t, want, d, text)
	}
	for _, text := range []string{"", ".", "-2", "2x", "1e3", "1.2.3", "NaN", "99999999999999999999"} {
		require.Error(t, new(timeSpan).Set(text), text)
	}
}
