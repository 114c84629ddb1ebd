package sim

import (
	"encoding/binary"
	"errors"
	"os"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// A Responder that waited in vain for an RTR message, because its Initiator had aborted, is excused
// where neither that message nor a RST need have reached it, and only there.
func TestAbortIsExcusedWhereItsWordWasLost(t *testing.T) {
	wl := workload(t, "testdata/found/abort-while-an-rtr-message-is-awaited")
	for n := 0; !errors.Is(ending(t, wl).sessions[0].peers[1-wl.Ending.Host].qp.Err(),
		rnic.ErrStartupTimeout); n++ {
		require.Less(t, n, 500, "a seed with which the RST is lost")
		wl.Seed++
	}
	t.Log("seed", wl.Seed)
	for name, c := range map[string]struct {
		happens func(s *session, mine, other *leg)
		excused bool
	}{
		"as it was": {func(*session, *leg, *leg) {}, true},
		"a RST outside the window": {func(_ *session, l, _ *leg) {
			l.resets = []reset{{seq: 1, before: 9, right: 99}}
		}, true},
		"a RST that must be taken": {func(_ *session, l, _ *leg) {
			l.resets = []reset{{seq: 9, before: 9, right: 99}}
		}, false},
		"a segment without answer": {func(_ *session, _, o *leg) { o.strays += o.sent }, false},
		"no RST":                   {func(_ *session, _, o *leg) { o.gone = false }, false},
		"an RTR message that arrived": {func(s *session, l, o *leg) {
			l.next, l.acked = o.end, o.end
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			s := ending(t, wl).sessions[0]
			require.ErrorIs(t, s.peers[1-s.ending.Host].qp.Err(), rnic.ErrStartupTimeout)
			doer, other := s.ending.Host, 1-s.ending.Host
			require.NoError(t, s.check())
			c.happens(s, s.peers[other].leg(), s.peers[doer].leg())
			require.Equal(t, c.excused, s.excused())
			require.Equal(t, c.excused, s.check() == nil)
		})
	}
}

// workload is what a file has.
func workload(t *testing.T, file string) Workload {
	t.Helper()
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	require.Regexp(t, `^\s*# `, string(text), "want comments with the cause first")
	wl, err := ParseWorkload(string(text))
	require.NoError(t, err)
	return wl
}

// ending plays a Workload until its connections are over.
func ending(t *testing.T, wl Workload) *run {
	t.Helper()
	r, err := wl.start()
	require.NoError(t, err)
	for _, stage := range r.stages() {
		require.NoError(t, stage.do(), stage.name)
		if stage.name == "close" {
			break
		}
	}
	return r
}

func TestRefusableReset(t *testing.T) {
	for _, c := range []struct {
		name string
		r    reset
		want bool
	}{
		{"RCV.NXT", reset{seq: 9, before: 9, right: 99}, false},
		{"RCV.NXT, and an ACK that says so", reset{seq: 9, before: 9, right: 99, answered: true,
			after: 9}, false},
		{"RCV.NXT, of octets not yet acknowledged", reset{seq: 9, before: 5, right: 99, answered: true,
			after: 9}, false},
		{"perhaps of octets that came later", reset{seq: 9, before: 5, right: 99, answered: true,
			after: 9, moved: true}, true},
		{"in the window, challenged", reset{seq: 12, before: 9, right: 99, answered: true, after: 9},
			true},
		{"in the window, unanswered", reset{seq: 12, before: 9, right: 99}, false},
		{"the right edge", reset{seq: 99, before: 9, right: 99}, true},
		{"RCV.NXT with a window of 0", reset{seq: 9, before: 9, right: 9}, false},
		{"old", reset{seq: 8, before: 9, right: 99}, true},
		{"around 0", reset{seq: 3, before: 0xfffffff0, right: 99}, false},
	} {
		require.Equal(t, c.want, c.r.refusable(), c.name)
	}
}

// A segment reached the host when no octet that a checksum, or the host's address, covers was
// damaged.
func TestTapTakesWholeSegments(t *testing.T) {
	for _, v6 := range []bool{false, true} {
		w, err := New(Config{V6: v6})
		require.NoError(t, err)
		tp := w.Hosts[1].tap
		src, dst := inet.AddrFrom(w.Hosts[0].Addr), inet.AddrFrom(w.Hosts[1].Addr)
		l4 := make([]byte, tcp.HeaderLenMin)
		binary.BigEndian.PutUint16(l4, 7)
		binary.BigEndian.PutUint16(l4[2:], 8)
		l4[12], l4[13] = tcp.HeaderLenMin/4<<4, byte(tcp.RST)
		binary.BigEndian.PutUint16(l4[16:],
			inet.Checksum(l4, inet.PseudoSum(src, dst, inet.ProtoTCP, len(l4))))
		e := inet.Ethernet{Dst: tp.mac, Src: w.Hosts[0].tap.mac, Type: inet.EtherTypeIPv4}
		frame := make([]byte, inet.EthernetLen+inet.IPv4Len)
		if v6 {
			e.Type = inet.EtherTypeIPv6
			frame = make([]byte, inet.EthernetLen+inet.IPv6Len)
			(&inet.IPv6{NextHeader: inet.ProtoTCP, PayloadLen: len(l4), Src: src, Dst: dst}).Put(
				frame[inet.EthernetLen:])
		} else {
			(&inet.IPv4{Proto: inet.ProtoTCP, TotalLen: inet.IPv4Len + len(l4), Src: src, Dst: dst}).Put(
				frame[inet.EthernetLen:])
		}
		e.Put(frame)
		frame = append(frame, l4...)
		require.True(t, tp.whole(frame))
		require.Equal(t, tcp.RST, tp.seg.Flags)
		for n := range frame {
			require.False(t, tp.whole(frame[:n]), n)
		}
		for i := range frame {
			switch { // what no checksum covers
			case i >= 6 && i < 12, v6 && i >= inet.EthernetLen && i < inet.EthernetLen+4, v6 &&
				i == inet.EthernetLen+7:
				continue
			}
			frame[i] ^= 0x10
			require.False(t, tp.whole(frame), i)
			frame[i] ^= 0x10
		}
	}
}
