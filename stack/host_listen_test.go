package stack

import (
	"encoding/binary"
	"net/netip"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/stretchr/testify/require"
)

// mldFrame is a message with the Router Alert, from a querier.
func mldFrame(t *testing.T, dst inet.Addr, hopLimit uint8, text string) []byte {
	m := unhex(t, text)
	src := inet.LinkLocal(rivalMAC)
	sum := inet.Checksum(m, inet.PseudoSum(src, dst, inet.ProtoICMPv6, len(m)))
	binary.BigEndian.PutUint16(m[2:], sum)
	f := make([]byte, inet.EthernetLen+inet.IPv6Len)
	eth := inet.Ethernet{Dst: dst.GroupMAC(), Src: rivalMAC, Type: inet.EtherTypeIPv6}
	eth.Put(f)
	ip := inet.IPv6{PayloadLen: 8 + len(m), HopLimit: hopLimit, Src: src, Dst: dst}
	ip.Put(f[inet.EthernetLen:])
	f = append(f, unhex(t, "3a 00 0502 0000 0100")...)
	return append(f, m...)
}

const generalQuery = "82 00 0000 0000 0000 00000000000000000000000000000000 02 7d 0000"

// A Query is answered that came with its Router Alert and in one piece; a Report waits for a Buf.
// req: 3810-6.2-1, 3810-6.2-2
func TestQueriesThroughThePoller(t *testing.T) {
	l := newLab(t, sixes)
	reports := 0
	l.b.nic.onReport = func([]byte) { reports++ }
	taken := make([]mem.Buf, l.b.pool.Size())
	taken = taken[:l.b.pool.AllocN(taken)]
	turns := l.b.counters().Turns
	l.pass(second)
	require.Zero(t, reports)
	require.Less(t, l.b.counters().Turns-turns, uint64(250), "it does not spin")
	l.b.pool.FreeN(taken)
	l.pass(20 * second)
	require.Equal(t, 2, reports)
	query := mldFrame(t, inet.AllNodes, 1, generalQuery)
	for _, f := range append(fragments6(query, 16), query) {
		l.a.nic.inject(f)
		l.pass(second)
	}
	require.Equal(t, 3, reports)
	require.Equal(t, uint64(1), l.b.counters().Listener.Queries)
	noAlert := mldFrame(t, inet.AllNodes, 1, generalQuery)
	copy(noAlert[54:], unhex(t, "3a 00 0104 00000000"))
	l.a.nic.inject(noAlert)
	l.pass(second)
	require.Equal(t, uint64(1), l.b.counters().Inet[inet.DropBadMLD])
	l.b.nic.onReport = nil
}

// Of a Group one member reports, whichever a Query comes to.
func TestGroupReportsOnce(t *testing.T) {
	l := groupLabTuned(t, 3, func(cfg *Config) {
		cfg.Addrs = []netip.Prefix{netip.PrefixFrom(addr6(1), 64)}
	})
	var reports [3]int
	for i, h := range l.hosts[1:] {
		h.nic.onReport = func([]byte) { reports[i]++ }
	}
	l.pass(20 * second)
	require.Equal(t, [3]int{2}, reports)
	for range 5 { // which each come to any of them
		l.a.nic.inject(mldFrame(t, inet.AllNodes, 1, generalQuery))
		l.pass(second)
	}
	require.Equal(t, [3]int{7}, reports)
	for _, h := range l.hosts[1:] {
		h.nic.onReport = nil
	}
}
