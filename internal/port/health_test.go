package port

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/dpdk"
)

// ailing is a device whose link and queues are as the test says.
type ailing struct {
	pmd.Port
	link  dpdk.Link
	stuck []int
}

func (a *ailing) Name() string                         { return "ailing" }
func (a *ailing) Link() dpdk.Link                      { return a.link }
func (a *ailing) Stuck(time.Time, time.Duration) []int { return a.stuck }

// Each change is told once.
func TestHealthIsTold(t *testing.T) {
	var h heard
	d := &ailing{link: dpdk.Link{Up: true, FullDuplex: true, Mbps: 25_000}}
	device := NewHealth(d)
	said := func() string {
		for range 3 {
			device.Look(time.Now(), &h)
		}
		return h.said()
	}
	require.Empty(t, said())
	require.Empty(t, TroubleOf(d))
	d.link = dpdk.Link{}
	require.Equal(t, "link down", said())
	require.Equal(t, pmd.Trouble{Kind: pmd.TroubleLink, Text: "ailing has no link"}, TroubleOf(d))
	d.stuck = []int{1}
	require.Equal(t, "stuck 1 true", said())
	d.link, d.stuck = dpdk.Link{Up: true, FullDuplex: true, Mbps: 10_000}, nil
	require.Equal(t, "link up, 10000 Mbit/s; stuck 1 false", said())
	require.Empty(t, TroubleOf(d))

	plain := struct{ pmd.Port }{}
	NewHealth(plain).Look(time.Now(), &h)
	require.Empty(t, h.said())
	require.Empty(t, TroubleOf(plain))
}

// troubled is a device that is in trouble, as the test says.
type troubled struct {
	pmd.Port
	is pmd.Trouble
}

func (d *troubled) Trouble() pmd.Trouble { return d.is }

// A device's trouble is told once, and its end. One that comes and goes is told each 10 s at
// most; one of another kind, at once.
func TestTroubleIsTold(t *testing.T) {
	var h heard
	down, moved := pmd.Trouble{Kind: pmd.TroubleDown, Text: "down"},
		pmd.Trouble{Kind: pmd.TroubleMoved, Text: "moved"}
	d := &troubled{}
	device, at := NewHealth(d), time.Now()
	for _, c := range []struct {
		is    pmd.Trouble
		after time.Duration
		told  string
	}{
		{pmd.Trouble{}, 0, ""}, {down, time.Second, `trouble "" "down"`}, {down, time.Hour, ""},
		{pmd.Trouble{}, 1, `trouble "down" ""`},
		{down, time.Second, `trouble "" "down"`}, {down, time.Second, ""},
		{pmd.Trouble{}, time.Second, `trouble "down" ""`},
		{down, time.Second, ""}, {pmd.Trouble{}, time.Second, ""},
		{moved, time.Second, `trouble "" "moved"`},
		{down, troublePeriod - 5*time.Second - 1, ""}, {down, 1, `trouble "moved" "down"`},
		{moved, troublePeriod - 1, `trouble "down" "moved"`}, {pmd.Trouble{}, 0, `trouble "moved" ""`},
		{pmd.Trouble{}, time.Hour, ""},
	} {
		d.is, at = c.is, at.Add(c.after)
		device.Look(at, &h)
		require.Equal(t, c.told, h.said())
		require.Equal(t, c.is, TroubleOf(d))
	}
}

// bad is a device with a peer that did wrong so often.
type bad struct {
	pmd.Port
	n uint64
}

func (b *bad) Offences() uint64 { return b.n }

// Offences of a peer are told as they come, and counted.
func TestOffencesAreTold(t *testing.T) {
	var h heard
	d := &bad{n: 2}
	device := NewHealth(d)
	for n, told := range []string{2: "offences 2", 3: "offences 1", 4: "offences 1"} {
		if told == "" {
			continue
		}
		d.n = uint64(n)
		for _, want := range []string{told, ""} {
			device.Look(time.Now(), &h)
			require.Equal(t, want, h.said())
		}
		require.Equal(t, []dpdk.XStat{{Name: "peer_offences", Value: d.n}}, (&Port{device: d}).XStats())
		require.Equal(t, d.n, OffencesOf(d))
	}
	require.Zero(t, OffencesOf(struct{ pmd.Port }{}))
}
