package port

import (
	"fmt"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/capture"
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/dpdk"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/stack"
)

// heard is a Reporter that writes down what it is told.
type heard []string

func (h *heard) add(format string, args ...any) { *h = append(*h, fmt.Sprintf(format, args...)) }

func (h *heard) Conflict(addr netip.Addr, rival inet.MAC, lost bool) {
	h.add("conflict %v %v %v", addr, rival, lost)
}
func (h *heard) Full(segments uint64)                     { h.add("full %d", segments) }
func (h *heard) Link(l dpdk.Link)                         { h.add("link %v", l) }
func (h *heard) Stuck(queue int, stuck bool, _ dpdk.Link) { h.add("stuck %d %v", queue, stuck) }

func (h *heard) Offences(n uint64)           { h.add("offences %d", n) }
func (h *heard) Trouble(was, is pmd.Trouble) { h.add("trouble %q %q", was.Text, is.Text) }
func (h *heard) Capture(err error)           { h.add("capture %v", err) }
func (h *heard) ChecksumsLeft(n uint64)      { h.add("checksums %d", n) }

// said is what it was told since the last time.
func (h *heard) said() string {
	defer func() { *h = nil }()
	return strings.Join(*h, "; ")
}

// Each conflict is told once, one that goes on once a minute; the last address lost is the end.
func TestConflictsAreTold(t *testing.T) {
	var h heard
	c := newConflicts(
		[]netip.Prefix{netip.MustParsePrefix("10.9.0.1/24"), netip.MustParsePrefix("fd09::1/64")})
	now := time.Now()
	first := stack.AddrStatus{Addr: netip.MustParseAddr("10.9.0.1"), State: stack.AddrUsable}
	second := stack.AddrStatus{Addr: netip.MustParseAddr("fd09::1"), State: stack.AddrUsable}
	local := stack.AddrStatus{Addr: netip.MustParseAddr("fe80::1"), State: stack.AddrUsable}
	says := func(want string) {
		t.Helper()
		require.NoError(t, c.tell([]stack.AddrStatus{first, second, local}, now, &h))
		require.Equal(t, want, h.said())
	}
	says("")
	first.Conflicts, first.Rival = 1, inet.MAC{2, 5: 7}
	const used = "conflict 10.9.0.1 02:00:00:00:00:07 false"
	says(used)
	for range 59 {
		first.Conflicts++
		now = now.Add(time.Second)
		says("")
	}
	now = now.Add(time.Second)
	says(used)
	now = now.Add(time.Hour)
	says("")
	second.State, second.Rival = stack.AddrDuplicate, inet.MAC{2, 5: 8}
	says("conflict fd09::1 02:00:00:00:00:08 true")
	says("")
	first.State = stack.AddrDuplicate
	require.ErrorIs(t, c.tell([]stack.AddrStatus{first, second, local}, now, &h), ErrAddrTaken)
	require.Equal(t, "conflict 10.9.0.1 02:00:00:00:00:07 true", h.said())
}

// A port serves on its configured addresses, whatever their scope, until another host has the last.
func TestLinkLocalAddressesServe(t *testing.T) {
	for _, text := range []string{"fe80::2/64", "169.254.7.1/16"} {
		link := must(wire.New(wire.Config{}))(t)
		p, err := Open(Config{
			Driver: Of("cable", wire.MTUMax, link.Port(0)),
			Addrs:  []netip.Prefix{netip.MustParsePrefix(text)},
			DAD:    DADNone, Page: hugepages.Normal, Node: hugepages.AnyNode,
		})
		require.NoError(t, err)
		require.NoError(t, p.Start())
		var h heard
		c := newConflicts(p.cfg.Addrs)
		all := must(p.pollers[0].Addrs(t.Context()))(t)
		require.NoError(t, c.tell(all, time.Now(), &h), text)
		require.Empty(t, h.said())
		require.Len(t, all, 1)
		all[0].State = stack.AddrDuplicate
		require.ErrorIs(t, c.tell(all, time.Now(), &h), ErrAddrTaken)
		require.NoError(t, p.Close())
	}
}

// What was not answered is told of at once, and then each 10 s at most, with how much it was
// meanwhile.
func TestFullPeriod(t *testing.T) {
	var h heard
	f, at := lately{tell: h.Full}, time.Now()
	for _, c := range []struct {
		count uint64
		after time.Duration
		told  string
	}{{0, 0, ""}, {2, 0, "full 2"}, {5, latelyPeriod - 1, ""}, {6, 1, "full 4"}, {6, time.Hour, ""}} {
		at = at.Add(c.after)
		f.look(c.count, at)
		require.Equal(t, c.told, h.said())
	}
}

// That a file is full is told once, and is no error of Close then.
func TestFullCaptureIsTold(t *testing.T) {
	var h heard
	c := must(capture.New(full{}, capture.Config{}))(t)
	link := must(wire.New(wire.Config{}))(t)
	require.NoError(t, c.Attach(capture.NewPoint(link.Port(0))))
	p := &Port{capture: c}
	p.lookAtCapture(&h)
	require.Empty(t, h.said())
	require.Error(t, c.Flush())
	p.lookAtCapture(&h)
	require.Contains(t, h.said(), "capture capture: no space left on device")
	p.lookAtCapture(&h)
	require.Empty(t, h.said())
	require.NoError(t, p.Close())
}

// full takes nothing.
type full struct{}

func (full) Write([]byte) (int, error) { return 0, unix.ENOSPC }
