package iphost

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/inet"
)

// ping is an echo request of n octets.
func ping(typ byte, n int, from, to inet.Addr) []byte {
	m := make([]byte, n)
	m[0] = typ
	for i := 4; i < n; i++ {
		m[i] = byte(i)
	}
	var pseudo uint64
	if typ == inet.ICMP6Echo {
		pseudo = inet.PseudoSum(from, to, inet.ProtoICMPv6, n)
	}
	binary.BigEndian.PutUint16(m[2:], inet.Checksum(m, pseudo))
	return m
}

// A ping is answered whole or, where the path or the room is too small, in fragments that make the
// same message; a bad one is not.
// req: 1122-3.2.2.6-1, 4443-4.2-1
func TestEcho(t *testing.T) {
	from4, from6 := other, addr("fd00::9")
	for _, n := range []int{8, 1400, 1472, 1480, 1481, 4000} {
		s := newStation(t, func(cfg *Config) { with6(cfg); unchecked(cfg) })
		s.pass(20 * second)
		s.forget()
		ask := ping(inet.ICMPEcho, n, from4, ours)
		ip4 := inet.IPv4{Src: from4, Dst: ours, TOS: 3, DF: true}
		_, drop := s.ICMP(rivalMAC, &ip4, append([]byte(nil), ask...))
		require.Equal(t, inet.DropNone, drop)
		got := gather(t, s, from4)
		require.Equal(t, []byte{inet.ICMPEchoReply, 0}, got[:2])
		require.Equal(t, ask[4:], got[4:])
		require.Zero(t, inet.Checksum(got, 0))
		require.Len(t, s.frames, (n+1479)/1480)

		s.forget()
		ask = ping(inet.ICMP6Echo, n, from6, ours6)
		ip6 := inet.IPv6{Src: from6, Dst: ours6, NextHeader: inet.ProtoICMPv6}
		_, drop = s.ICMP6(s.now, rivalMAC, &ip6, append([]byte(nil), ask...), true, false)
		require.Equal(t, inet.DropNone, drop)
		got = gather(t, s, from6)
		require.Equal(t, []byte{inet.ICMP6EchoReply, 0}, got[:2])
		require.Equal(t, ask[4:], got[4:])
		require.Equal(t, n > 1460, len(s.frames) > 1)
		require.Equal(t, uint64(2), s.Counters().EchoReplies)

		ask[5] ^= 1
		_, drop = s.ICMP6(s.now, rivalMAC, &ip6, ask, true, false)
		require.Equal(t, inet.DropBadICMP, drop)
		s.full = true
		_, _ = s.ICMP(rivalMAC, &ip4, ping(inet.ICMPEcho, n, from4, ours))
		require.Equal(t, uint64(2), s.Counters().EchoReplies)
	}
}

// gather puts the packets together that s sent to an address, and returns their payload.
func gather(t *testing.T, s *station, to inet.Addr) []byte {
	r := inet.NewReassembly(inet.ReassemblyConfig{})
	for _, f := range s.frames {
		eth, b, _ := inet.ParseEthernet(f)
		require.Equal(t, inet.Ethernet{Dst: rivalMAC, Src: ourMAC, Type: eth.Type}, eth)
		require.LessOrEqual(t, len(b), 1500)
		var part inet.Fragment
		if to.Is4() {
			ip, m, drop := inet.ParseIPv4(b, false)
			require.Equal(t, to, ip.Dst)
			require.EqualValues(t, 64, ip.TTL)
			require.EqualValues(t, 3, ip.TOS)
			require.Equal(t, len(s.frames) == 1, ip.DF, "as it was asked")
			if drop == inet.DropNone {
				return m
			}
			part = inet.Fragment{
				Datagram: inet.Datagram{Src: ip.Src, Dst: ip.Dst, ID: uint32(ip.ID), Proto: ip.Proto},
				Next:     ip.Proto, Off: ip.FragOff, More: ip.MF, Head: ip.HdrLen, Payload: m, Packet: b,
			}
		} else {
			ip, m, _ := inet.ParseIPv6(b)
			require.Equal(t, to, ip.Dst)
			c, _ := inet.WalkIPv6(m, ip.NextHeader, inet.IPv6Len, false)
			if !c.HasFragment {
				return m[c.Off:]
			}
			part = inet.Fragment{
				Datagram: inet.Datagram{Src: ip.Src, Dst: ip.Dst, ID: c.Fragment.ID},
				Next:     c.Fragment.NextHeader, Off: c.Fragment.Off, More: c.Fragment.More,
				Payload: m[c.Off:], Packet: b,
			}
		}
		if whole, _, _ := r.Add(0, &part); whole != nil {
			return whole
		}
	}
	t.Fatal("it is not whole")
	return nil
}

// Errors are sent within the rate alone, to the station that the packet came from or by way of the
// next hop.
// req: 4443-2.4-1
func TestReport(t *testing.T) {
	s := newStation(t, func(cfg *Config) { with6(cfg); unchecked(cfg) })
	s.pass(20 * second)
	s.forget()
	from := addr("fd00::9")
	quoted := make([]byte, inet.IPv6Len+20)
	ip := inet.IPv6{PayloadLen: 20, NextHeader: 99, HopLimit: 9, Src: from, Dst: ours6}
	ip.Put(quoted)
	for i := range 20 {
		mac := &rivalMAC
		if i == 3 {
			mac = nil
		}
		s.Report(s.now, mac, &ours6, &from, inet.ICMP6ParameterProblem, inet.ProblemNextHeader, 6, quoted)
	}
	require.Len(t, s.frames, 10)
	require.Equal(t, []uint64{10, 10}, []uint64{s.Counters().ErrorsSent, s.Counters().ErrorsLimited})
	require.Equal(t, rivalMAC[:], s.frames[0][:6])
	require.Equal(t, make([]byte, 6), s.frames[3][:6], "the Link finds it out")
	_, m, _ := inet.ParseIPv6(s.frames[0][inet.EthernetLen:])
	require.Equal(t, []byte{inet.ICMP6ParameterProblem, inet.ProblemNextHeader}, m[:2])
	require.Equal(t, quoted, m[8:])
	s.pass(second / 2)
	nobody := inet.Addr{}
	s.Report(s.now, &rivalMAC, &ours6, &nobody, inet.ICMP6Unreachable, 4, 0, quoted)
	require.Len(t, s.frames, 10, "not to what is no host")
	for range 20 {
		s.Report(s.now, &rivalMAC, &ours6, &from, inet.ICMP6Unreachable, 4, 0, quoted)
	}
	require.Len(t, s.frames, 15, "ten a second")
}

// What we send has our VLAN's tag.
func TestTag(t *testing.T) {
	s := newStation(t, func(cfg *Config) { with6(cfg); cfg.VLAN = 10 })
	s.pass(20 * second)
	require.NotEmpty(t, s.frames)
	for _, f := range s.frames {
		require.Equal(t, []byte{0x81, 0, 0, 10}, f[12:16])
	}
}
