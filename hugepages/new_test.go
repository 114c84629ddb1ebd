package hugepages

import (
	"errors"
	"math"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/skip"
)

func TestNewRefusesNonsense(t *testing.T) {
	for field, cfg := range map[string]Config{
		"Bytes": {Bytes: 0, Node: AnyNode},
		"Page":  {Bytes: 1, Page: 12345, Node: AnyNode},
		"Node":  {Bytes: 1, Node: -2},
	} {
		_, err := New(cfg)
		var bad *ConfigError
		require.ErrorAs(t, err, &bad)
		require.Equal(t, field, bad.Field)
	}
}

// The zero Config takes any node; node 0 is asked for.
func TestZeroNodeIsAnyNode(t *testing.T) {
	for given, want := range map[int]int{0: AnyNode, AnyNode: AnyNode, OnNode(0): 0,
		OnNode(AnyNode): AnyNode, OnNode(2): 2, 2: 2} {
		require.Equal(t, want, Config{Node: given}.numbered().Node, given)
	}
}

func TestNewRefusesAbsentNode(t *testing.T) {
	_, err := New(Config{Bytes: 1, Page: Normal, Node: nodesMax - 1})
	var bad *NodeError
	require.ErrorAs(t, err, &bad)
	require.Equal(t, nodesMax-1, bad.Node)
	require.NotEmpty(t, bad.Online)
}

// More than the machine has is refused with numbers before a page is touched.
func TestNewRefusesMoreThanMemory(t *testing.T) {
	for _, size := range []int64{1 << 50, math.MaxInt64} {
		for _, page := range []PageSize{Auto, Normal, Page2MiB, Page1GiB} {
			_, err := New(Config{Bytes: size, Page: page, Node: AnyNode})
			var short *MemoryError
			require.ErrorAs(t, err, &short, "%v", page)
			require.GreaterOrEqual(t, short.Wanted, size)
			require.Positive(t, short.Available)
			require.Less(t, short.Available, short.Wanted)
			require.NotContains(t, err.Error(), "\n")
		}
	}
}

func TestNewJustAboveAvailable(t *testing.T) {
	m, err := readMemory(sysRoot)
	if err != nil {
		skip.Missing(t, "no memory counters: %v", err)
	}
	_, err = New(Config{Bytes: m.available + m.total/64, Page: Normal, Node: AnyNode})
	var short *MemoryError
	require.ErrorAs(t, err, &short)
}

func TestCandidates(t *testing.T) {
	require.Equal(t, []PageSize{Page2MiB, Normal}, Config{}.candidates())
	require.Equal(t, []PageSize{Page1GiB, Page2MiB, Normal}, Config{Page: Page1GiB}.candidates())
	require.Equal(t, []PageSize{Normal}, Config{Page: Normal, NoFallback: true}.candidates())
	require.Equal(t, []PageSize{Page1GiB}, Config{Page: Page1GiB, NoFallback: true}.candidates())
	require.Equal(t, []PageSize{Page2MiB}, Config{NoFallback: true}.candidates())
}

func TestJoinLineKeepsBoth(t *testing.T) {
	a, b := &ShortageError{Page: Page2MiB, Node: AnyNode, Wanted: 1},
		&ShortageError{Page: Page1GiB, Node: AnyNode, Wanted: 1}
	err := joinLine([]error{a, b})
	require.EqualError(t, err, a.Error()+"; then "+b.Error())
	require.True(t, errors.Is(err, a) && errors.Is(err, b))
	require.Same(t, a, joinLine([]error{a}))

	short := &MemoryError{Wanted: 1 << 40}
	err = joinLine([]error{a, short})
	require.EqualError(t, err, short.Error()+" (or 1 pages of 2 MiB, of which 0 are free)")
	require.ErrorIs(t, err, a)
	require.ErrorIs(t, err, short)
	require.Same(t, short, joinLine([]error{short}))
}
