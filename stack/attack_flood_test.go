package stack

import (
	"fmt"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// flood is an attack that needs no connection: hostileRate frames per tick.
type flood struct {
	name  string
	tune  func(cfg *Config)
	begin func(s *siege)
	frame func(s *siege) []byte
	check func(s *siege, n, before Counters, sent uint64)
}

// dropped says that every hostile frame was dropped for that reason.
func droppedTCP(d tcp.Drop) func(s *siege, n, before Counters, sent uint64) {
	return func(s *siege, n, before Counters, sent uint64) {
		require.GreaterOrEqual(s.t, n.TCP[d]-before.TCP[d], sent, d.String())
	}
}

func droppedInet(d inet.Drop) func(s *siege, n, before Counters, sent uint64) {
	return func(s *siege, n, before Counters, sent uint64) {
		require.GreaterOrEqual(s.t, n.Inet[d]-before.Inet[d], sent, d.String())
	}
}

// challenged is droppedTCP, and at most ten answers went to the healthy connection's peer.
func challenged(d tcp.Drop) func(s *siege, n, before Counters, sent uint64) {
	return func(s *siege, n, before Counters, sent uint64) {
		droppedTCP(d)(s, n, before, sent)
		require.LessOrEqual(s.t, s.v.conn.Stats().ChallengeAcks, uint64(10))
	}
}

var resetFloods = []flood{{
	name:  "RST anywhere",
	frame: func(s *siege) []byte { return s.healthy(tcp.RST, s.rcvNxt()+1<<20+s.seq()>>1, 0) },
	check: droppedTCP(tcp.DropWindow),
}, {
	name:  "RST in the window",
	frame: func(s *siege) []byte { return s.healthy(tcp.RST, s.inWindow(), 0) },
	check: challenged(tcp.DropRSTChallenge),
}, {
	name:  "RST to other ports",
	frame: func(s *siege) []byte { return s.spoofed(s.a.addr, 80, s.port()|8, tcp.RST, s.seq(), 0) },
	check: func(s *siege, n, before Counters, sent uint64) {
		droppedTCP(tcp.DropNoConn)(s, n, before, sent)
		require.Zero(s.t, n.RSTSent, "a RST is not answered")
	},
}, {
	name: "SYN into the connection",
	frame: func(s *siege) []byte {
		return s.healthy(tcp.SYN, s.rcvNxt()+tcp.Seq(s.r.IntN(20_000)), 0)
	},
	check: challenged(tcp.DropSYNChallenge),
}, {
	name:  "SYN,ACK into the connection",
	frame: func(s *siege) []byte { return s.healthy(tcp.SYN|tcp.ACK, s.seq(), s.sndUna()) },
	check: challenged(tcp.DropSYNChallenge),
}, {
	name: "segments to ports nobody listens on",
	frame: func(s *siege) []byte {
		return s.spoofed(s.anybody(), s.port(), 1000, tcp.ACK, s.seq(), s.seq())
	},
	check: func(s *siege, n, before Counters, sent uint64) {
		droppedTCP(tcp.DropNoConn)(s, n, before, sent)
		require.LessOrEqual(s.t, n.RSTSent, uint64(rstPerSecDefault*(1+siegeTicks*tickNs/second)+50))
		require.Equal(s.t, sent, n.RSTSent+n.Own[DropRSTLimited])
	},
}}

var dataFloods = []flood{{
	name: "ACK of what was never sent",
	frame: func(s *siege) []byte {
		return s.healthy(tcp.ACK, s.inWindow(), s.sndUna()+1<<20+s.seq()>>2)
	},
	check: challenged(tcp.DropAckUnsent),
}, {
	name: "ACK too old to be true",
	frame: func(s *siege) []byte {
		return s.healthy(tcp.ACK, s.inWindow(), s.sndUna()-1<<20-s.seq()>>2)
	},
	check: challenged(tcp.DropAckUnsent),
}, {
	name: "octets in the window, ACK guessed",
	frame: func(s *siege) []byte {
		return s.healthy(tcp.ACK|tcp.PSH, s.inWindow(), s.sndUna()-1<<20-s.seq()>>2, 1, 2, 3)
	},
	check: challenged(tcp.DropAckUnsent),
}, {
	name: "octets outside the window",
	frame: func(s *siege) []byte {
		return s.healthy(tcp.ACK, s.rcvNxt()+1<<20+s.seq()>>2, s.sndUna(), make([]byte, 100)...)
	},
	check: func(s *siege, n, before Counters, sent uint64) {
		droppedTCP(tcp.DropWindow)(s, n, before, sent)
		require.Less(s.t, n.Segments-before.Segments, sent/2, "one answer a burst, not one a segment")
	},
}, {
	name: "octets in the window, timestamp old",
	frame: func(s *siege) []byte {
		tr := tcp.Transmit{
			ID: tcp.ID{LocalPort: s.u.conn.tcp.ID().LocalPort, RemotePort: 7}, Flags: tcp.ACK,
			Seq: s.rcvNxt() + 100, Ack: s.sndUna(),
			Window: 500, Handle: tcp.NoHandle,
		}
		now := uint32(s.now/1_000_000) + s.a.secret.timestampOffset(s.u.conn.tcp.ID())
		tr.Options = tcp.Options{HasTimestamps: true, TSval: now - 1000 - s.r.Uint32()>>2}
		return segmentFrame(mallory, s.b.mac, s.a.addr, s.b.addr, tr, []byte{1, 2, 3})
	},
	check: droppedTCP(tcp.DropPAWS),
}}

// alive says that the healthy connection has been told nothing but advice, and sends full segments
// still.
func alive(s *siege, n, before Counters, sent uint64) {
	require.Zero(s.t, n.ICMPHard+n.PathMTU)
	require.Equal(s.t, sent, n.ICMPIgnored+n.ICMPSoft)
	require.Equal(s.t, 1448, s.v.conn.EMSS())
}

var icmpFloods = func() []flood {
	mtus := []uint16{0, 1, 68, 296, 552, 576, 1000, 1280, 1499, 1500, 9000, 65535}
	all := []flood{{
		name: "Fragmentation Needed about nothing in flight",
		frame: func(s *siege) []byte {
			return s.quoting(inet.ICMPUnreachable, inet.ICMPFragNeeded, mtus[s.r.IntN(len(mtus))],
				s.sndUna()-1-s.seq()>>1)
		},
		check: func(s *siege, n, before Counters, sent uint64) {
			alive(s, n, before, sent)
			require.Equal(s.t, sent, n.ICMPIgnored)
		},
	}, {
		name: "Fragmentation Needed about what is in flight",
		frame: func(s *siege) []byte {
			return s.quoting(inet.ICMPUnreachable, inet.ICMPFragNeeded, mtus[s.r.IntN(len(mtus))],
				s.sndUna()+tcp.Seq(s.r.IntN(1000)))
		},
		check: alive,
	}, {
		name: "errors about connections that there are not",
		frame: func(s *siege) []byte {
			f := s.quoting(inet.ICMPUnreachable, uint8(s.r.IntN(16)), 68, s.seq())
			f[tcpAt+inet.ICMPLen+inet.IPv4Len]++ // the quoted port; ICMP's checksum follows
			f[tcpAt+2], f[tcpAt+3] = 0, 0
			sum := inet.Checksum(f[tcpAt:], 0)
			f[tcpAt+2], f[tcpAt+3] = byte(sum>>8), byte(sum)
			return f
		},
		check: func(s *siege, n, before Counters, sent uint64) {
			require.Equal(s.t, sent, n.ICMPIgnored)
		},
	}, {
		name:  "pings",
		frame: func(s *siege) []byte { return s.ping(56) },
		check: func(s *siege, n, before Counters, sent uint64) {
			require.LessOrEqual(s.t, n.EchoReplies, sent)
		},
	}, {
		name: "UDP",
		frame: func(s *siege) []byte {
			return packet(mallory, s.b.mac, s.anybody(), s.b.addr, 17, make([]byte, 20))
		},
		check: func(s *siege, n, before Counters, sent uint64) {
			droppedInet(inet.DropProto)(s, n, before, sent)
			require.LessOrEqual(s.t, n.ICMPSent, uint64(icmpPerSecDefault+1))
		},
	}}
	for code := range uint8(16) {
		if code == inet.ICMPFragNeeded {
			continue
		}
		all = append(all, flood{
			name: fmt.Sprintf("unreachable, code %d, about what is in flight", code),
			frame: func(s *siege) []byte {
				return s.quoting(inet.ICMPUnreachable, code, 0, s.sndUna()+tcp.Seq(s.r.IntN(1000)))
			},
			check: alive,
		})
	}
	return all
}()

var fragmentFloods = []flood{{
	name: "first fragments of many datagrams",
	frame: func(s *siege) []byte {
		return s.fragment(s.anybody(), uint16(s.r.Uint32()), 0, 1400, true)
	},
	check: evicting,
}, {
	name: "last fragments of many datagrams from everywhere",
	frame: func(s *siege) []byte {
		return s.fragment(s.outsider(), uint16(s.r.Uint32()), 65000, 400, false)
	},
	check: evicting,
}, {
	name:  "fragments that overlap",
	frame: func(s *siege) []byte { return s.fragment(s.a.addr, 1, 8*s.r.IntN(100), 80, true) },
	check: func(s *siege, n, before Counters, sent uint64) {
		require.Greater(s.t, n.Inet[inet.DropOverlap], sent/2)
		require.Zero(s.t, n.Reassembled)
	},
}}

// evicting says that reassembly gave up the oldest and never grew.
func evicting(s *siege, n, before Counters, sent uint64) {
	require.Equal(s.t, sent, n.Fragments)
	require.GreaterOrEqual(s.t, n.Inet[inet.DropReassemblyFull], sent-64)
	require.Zero(s.t, n.Reassembled)
}

// fewNeighbours makes the table small enough to be filled.
func fewNeighbours(cfg *Config) { cfg.Neighbours.EntriesMax = 32 }

// resolved says that the neighbour table is bounded and the healthy peer's entry never left it.
func resolved(s *siege, n, before Counters, sent uint64) {
	require.LessOrEqual(s.t, s.b.neighbours.Stats().Entries, 32)
	require.Equal(s.t, before.ARPRequests, n.ARPRequests, "the healthy peer had to be asked for")
	require.Zero(s.t, n.Own[DropNeighbourFull]+n.Own[DropNeighbourLost])
}

var neighbourFloods = []flood{{
	name: "ARP requests from invented stations", tune: fewNeighbours,
	frame: func(s *siege) []byte { return s.arpFrame(inet.ARPRequest, s.anybody(), s.b.addr) },
	check: func(s *siege, n, before Counters, sent uint64) {
		resolved(s, n, before, sent)
		require.NotZero(s.t, s.b.neighbours.Stats().Evicted)
	},
}, {
	name: "ARP replies that nobody asked for", tune: fewNeighbours,
	frame: func(s *siege) []byte { return s.arpFrame(inet.ARPReply, s.anybody(), s.b.addr) },
	check: func(s *siege, n, before Counters, sent uint64) {
		resolved(s, n, before, sent)
		require.Equal(s.t, 1, s.b.neighbours.Stats().Entries)
	},
}, {
	name: "ARP that claims the healthy peer's address", tune: func(cfg *Config) {
		cfg.Neighbours.Doubt = true
	},
	frame: func(s *siege) []byte {
		return s.arpFrame([]uint16{inet.ARPReply, inet.ARPRequest}[s.r.IntN(2)], s.a.addr, s.b.addr)
	},
	check: func(s *siege, n, before Counters, sent uint64) {
		require.Equal(s.t, sent, s.b.neighbours.Stats().Doubted)
		require.Zero(s.t, s.b.neighbours.Stats().Moved)
	},
}, {
	name: "solicitations from invented stations", tune: fewNeighbours,
	frame: func(s *siege) []byte {
		return nsFrame(s.t.(*testing.T), s.lab, addr6(2+s.r.IntN(250)), addr6(1), 255)
	},
	check: func(s *siege, n, before Counters, sent uint64) {
		resolved(s, n, before, sent)
		require.NotZero(s.t, s.b.neighbours.Stats().Evicted)
	},
}}

var synFloods = []flood{{
	name:  "SYNs from the subnet",
	frame: func(s *siege) []byte { return s.spoofed(s.anybody(), s.port(), 7, tcp.SYN, s.seq(), 0) },
	check: halfOpen,
}, {
	name: "SYNs from everywhere", tune: func(cfg *Config) { cfg.Gateway = cfg.Addr.Addr().Prev() },
	frame: func(s *siege) []byte { return s.spoofed(s.outsider(), s.port(), 7, tcp.SYN, s.seq(), 0) },
	check: halfOpen,
}, {
	name: "ACKs that look like cookies",
	frame: func(s *siege) []byte {
		return s.spoofed(s.anybody(), s.port(), 7, tcp.ACK, s.seq(), s.seq())
	},
	check: func(s *siege, n, before Counters, sent uint64) {
		require.Zero(s.t, n.CookiesGood)
		require.Equal(s.t, 1, n.Conns)
		require.Equal(s.t, sent, n.RSTSent+n.Own[DropRSTLimited])
	},
}}

// halfOpen says that the SYNs took no slot, no neighbour and no more than the backlog, and that a
// client gets in at once.
func halfOpen(s *siege, n, before Counters, sent uint64) {
	require.LessOrEqual(s.t, n.HalfOpen, 16)
	require.Equal(s.t, 1, n.Conns)
	require.GreaterOrEqual(s.t, n.CookiesSent, sent-16)
	require.Equal(s.t, 1, s.b.neighbours.Stats().Entries)
	w := s.dial(s.a, s.b, 7, 5000)
	s.run(20, nil)
	require.True(s.t, w.opened)
	require.Equal(s.t, uint64(5000), s.accepted[1].edge)
}

// No flood takes more than five of a hundred octets from the healthy connection.
//
// req: 5961-3.2-1, 5961-4.2-1, 5961-5.2-1, 5961-7-1, 5927-4.1-1, 5927-5.2-1, 5927-7.2-1, 4987-3.5-1
func TestFloods(t *testing.T) {
	quiet := undisturbed(t, nil, siegeTicks)
	for _, group := range [][]flood{
		resetFloods, dataFloods, icmpFloods, fragmentFloods, neighbourFloods, synFloods, udpFloods,
	} {
		for _, f := range sample.Of(t, 1, group) {
			t.Run(f.name, func(t *testing.T) {
				s := newSiege(t, f.tune)
				if f.begin != nil {
					f.begin(s)
				}
				before := s.b.counters()
				got := s.run(siegeTicks, func() {
					for range hostileRate {
						s.hostile(f.frame(s))
					}
				})
				require.Greater(t, got, quiet*95/100, "goodput")
				n := s.b.counters()
				require.Zero(t, s.a.counters().Queue.TxFull, "the test's own link was too small")
				f.check(s, n, before, siegeTicks*hostileRate)
				s.end()
			})
		}
	}
}
