package stack

import (
	"net/netip"
	"testing"

	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/tcp"
	"github.com/stretchr/testify/require"
)

// crowd is peers of b that complete the handshake and then do as behave says: one TCP end each, as
// small as it can be.
type crowd struct {
	s       *siege
	members map[netip.AddrPort]*member
	all     []*member
	waiting []netip.AddrPort // to be opened, a few per tick
	out     [][]byte         // what they say, a few per tick
	port    uint16           // of b
	syn     tcp.Options

	// behave answers a segment that arrived for m, its SYN,ACK included.
	behave func(m *member, s *tcp.Segment)
	// idle is asked once per tick for every member that is open.
	idle func(m *member)
}

type member struct {
	c        *crowd
	at       netip.AddrPort
	nxt      tcp.Seq // next of ours
	first    tcp.Seq // the first octet of b's
	got      tcp.Seq // end of b's octets that came in order
	open     bool
	finished bool // b sent its FIN
	reset    bool
	n        int // for behave
}

// spring is an Upper that sends without end; drain one that keeps nothing. Both remember how they
// ended.
type spring struct {
	taker
	n      uint64 // octets still to send
	closed int
	err    error
	fin    bool // close after n octets
	keep   bool // keep the Bufs that arrive
	kept   []mem.Buf
	orphan bool
}

func (u *spring) Established() {
	u.conn.Send()
	if u.fin && u.n == 0 {
		u.close()
	}
}

func (u *spring) close() {
	u.conn.CloseSend()
	if u.orphan {
		u.conn.SetOrphaned()
	}
}

func (u *spring) Arrive(_ uint64, bufs []mem.Buf, data [][]byte) (int, Verdict) {
	if u.keep {
		u.kept = append(u.kept, bufs[0])
		return 1, Kept
	}
	return len(data), Taken
}

func (u *spring) Pull(dst [][]byte) (got Pulled) {
	for ; got.N < len(dst) && u.n > 0; got.N++ {
		n := int(min(uint64(len(dst[got.N])), u.n))
		dst[got.N] = dst[got.N][:n]
		u.n -= uint64(n)
	}
	if u.fin && u.n == 0 && got.N > 0 {
		u.close()
	}
	got.More = u.n > 0
	return got
}

func (u *spring) Closed(err error) { u.closed++; u.err = err }

// gather makes a crowd of n, which speak to port 9 of b, where springs flow.
func (s *siege) gather(n int, make func() *spring) (*crowd, *[]*spring) {
	c := &crowd{s: s, members: map[netip.AddrPort]*member{}, port: 9,
		syn: tcp.Options{MSS: 1460, WindowScale: 0, SACKPermitted: true}}
	springs := new([]*spring)
	require.NoError(s.t, s.b.Listen(9, 64, func(*Conn) Upper {
		u := make()
		*springs = append(*springs, u)
		return u
	}))
	for i := range n {
		at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(100 + i%100)}),
			uint16(1024+i/100))
		c.waiting = append(c.waiting, at)
		s.b.neighbours.Learn(s.now, inet.AddrFrom(at.Addr()), mallory, true)
	}
	s.b.nic.onSend = c.hear
	return c, springs
}

// hear takes a frame of b's.
func (c *crowd) hear(f []byte) {
	if inet.MAC(f[:6]) != mallory {
		return
	}
	if isARP(f) {
		if a, d := inet.ParseARP(f[inet.EthernetLen:]); d == inet.DropNone && a.Op == inet.ARPRequest {
			c.out = append(c.out, c.s.arpFrame(inet.ARPReply, a.TargetIP.Netip(), c.s.b.addr))
		}
		return
	}
	s, payload, ok := segmentOf(f)
	if !ok {
		return
	}
	ip, _, _ := inet.ParseIPv4(f[inet.EthernetLen:], false)
	m := c.members[netip.AddrPortFrom(ip.Dst.Netip(), s.DstPort)]
	switch {
	case m == nil:
	case s.Flags&tcp.RST != 0:
		m.reset, m.open = true, false
	case s.Flags&tcp.SYN != 0:
		m.first = s.Seq + 1
		m.got, m.open = m.first, true
		c.behave(m, &s)
	case m.open:
		if s.Seq == m.got {
			m.got += tcp.Seq(len(payload))
			if s.Flags&tcp.FIN != 0 {
				m.got++
				m.finished = true
			}
		}
		c.behave(m, &s)
	}
}

// say sends a segment of m's; window in octets, unscaled.
func (m *member) say(flags tcp.Flags, ack tcp.Seq, window uint16, o tcp.Options, payload ...byte) {
	t := tcp.Transmit{
		ID:  tcp.ID{LocalPort: m.at.Port(), RemotePort: m.c.port},
		Seq: m.nxt, Ack: ack, Flags: flags, Window: window, Options: o, Handle: tcp.NoHandle,
	}
	m.c.out = append(m.c.out, m.c.s.frameOf(m.at.Addr(), t, payload))
	m.nxt += tcp.Seq(len(payload))
	if flags&(tcp.SYN|tcp.FIN) != 0 {
		m.nxt++
	}
}

func (m *member) ack(ack tcp.Seq, window uint16) { m.say(tcp.ACK, ack, window, noOptions) }

// act is a tick of the crowd's: it opens connections and says what it has to, hostileRate frames at
// most.
func (c *crowd) act() {
	if c.idle != nil {
		for _, m := range c.all {
			if m.open {
				c.idle(m)
			}
		}
	}
	for len(c.out) < hostileRate && len(c.waiting) > 0 {
		at := c.waiting[0]
		c.waiting = c.waiting[1:]
		m := &member{c: c, at: at, nxt: tcp.Seq(at.Port())<<16 | tcp.Seq(at.Addr().As4()[3])}
		c.members[at], c.all = m, append(c.all, m)
		m.say(tcp.SYN, 0, 65535, c.syn)
	}
	n := min(len(c.out), hostileRate)
	for _, f := range c.out[:n] {
		c.s.hostile(f)
	}
	c.out = c.out[n:]
}

// pass lets d nanoseconds go by at the pace of b's timers rather than tick by tick; the crowd
// answers, a rests.
func (c *crowd) pass(d int64) {
	s := c.s
	for end := s.now + d; s.now < end; {
		s.a.Turn()
		c.act()
		s.b.Turn()
		at := min(s.a.Deadline(), s.b.Deadline(), end)
		if len(c.out) > 0 {
			at = s.now
		}
		s.now = max(s.now+tickNs, at)
	}
}

// opened runs until everybody has been let in.
func (c *crowd) opened() {
	c.s.t.Helper()
	for range 100_000 {
		if c.s.run(1, c.act); len(c.waiting) == 0 && len(c.out) == 0 {
			c.s.run(20, c.act)
			return
		}
	}
	c.s.t.Fatal("the crowd never gets in")
}

// hoard is an attack by a crowd: what the members do, and what must hold then.
type hoard struct {
	name   string
	size   int
	tune   func(cfg *Config)
	spring func() *spring
	behave func(m *member, s *tcp.Segment)
	idle   func(m *member)
	atOnce int // percent of its goodput that the healthy connection keeps while the crowd has its time
	later  int // and after StallNs
	build  int // ticks it is given then to take what it can have
	check  func(s *siege, c *crowd, springs []*spring)
}

func endless() *spring { return &spring{n: 1 << 40} }

// manyConns has room for crowds, and more records than they can hold: Bufs are what is short.
func manyConns(cfg *Config) {
	cfg.ConnsMax, cfg.SynMax = 4096, 4096
	cfg.TCP.RecordsMax = 4 * 4096 * 8
}

// taking acknowledges the first n octets and then nothing more, with that window.
func taking(n int, window uint16) func(m *member, s *tcp.Segment) {
	return func(m *member, s *tcp.Segment) {
		if int(m.got-m.first) < n {
			m.ack(m.got, 65535)
			return
		}
		m.ack(m.first+tcp.Seq(n), window)
	}
}

var hoards = []hoard{{
	name: "window shut from the beginning", size: 2500, behave: taking(0, 0), atOnce: 95, later: 95,
	check: reclaimed,
}, {
	name: "window shut from the beginning, records are short", size: 2500, behave: taking(0, 0),
	tune:   func(cfg *Config) { cfg.TCP.RecordsMax = 2048 * 8 },
	atOnce: 70, later: 95, build: 8000, check: reclaimed,
}, {
	name: "nothing is ever acknowledged, the window is open", size: 500,
	behave: func(m *member, s *tcp.Segment) {
		if s.Flags&tcp.SYN != 0 {
			m.ack(m.first, 65535)
		}
	},
	atOnce: 95, later: 95, check: reclaimed,
}, {
	name: "some is acknowledged, then the window is shut over what is in flight", size: 300,
	behave: taking(20_000, 0), atOnce: 90, later: 90, check: reclaimed,
}, {
	name: "as many as there are Bufs acknowledge something, then the window is shut", size: 2500,
	behave: taking(1448, 0), atOnce: 90, later: 90, check: reclaimed,
}, {
	name: "an octet is acknowledged now and then", size: 300,
	behave: func(m *member, s *tcp.Segment) {
		if int(m.got-m.first) < 20_000 {
			m.ack(m.got, 65535)
		}
	},
	idle: func(m *member) {
		if m.n++; m.n%2000 == 0 && int(m.got-m.first) >= 20_000 {
			m.ack(m.first+20_000+tcp.Seq(m.n/2000), 65535)
		}
	},
	atOnce: 90, later: 90, build: siegeBuild, check: reclaimed,
}}

// reclaimed says that the crowd lost what it kept, and was told so.
func reclaimed(s *siege, c *crowd, springs []*spring) {
	n := s.b.counters()
	require.NotZero(s.t, n.Reclaimed)
	ended := uint64(0)
	for _, u := range springs {
		if u.closed > 0 {
			require.ErrorIs(s.t, u.err, ErrHoarding)
			ended++
		}
	}
	require.Equal(s.t, n.Reclaimed, ended)
}

// A crowd that keeps what it is sent cannot take the Bufs from a connection that flows; when others
// wait for Bufs, it loses them, and a newcomer gets his.
func TestHoards(t *testing.T) {
	quiet := undisturbed(t, manyConns, siegeTicks)
	for _, h := range sample.Of(t, 1, hoards) {
		t.Run(h.name, func(t *testing.T) {
			s := newSiege(t, func(cfg *Config) {
				manyConns(cfg)
				if h.tune != nil {
					h.tune(cfg)
				}
			})
			make := h.spring
			if make == nil {
				make = endless
			}
			c, springs := s.gather(h.size, make)
			c.behave, c.idle = h.behave, h.idle
			c.opened()
			got := s.run(siegeTicks, c.act)
			require.Greater(t, got, quiet*h.atOnce/100, "goodput at once")
			least := s.b.pool.Available()
			for range 16 {
				s.u.toSend, s.v.toSend = s.u.sent, s.v.sent // a rest, or the test takes minutes
				c.pass(second / 2)
				least = min(least, s.b.pool.Available())
			}
			s.u.toSend, s.v.toSend = 1<<40, 1<<40
			s.u.conn.Send()
			s.v.conn.Send()
			s.run(h.build, c.act)
			got = s.run(siegeTicks, c.act)
			require.Greater(t, got, quiet*h.later/100, "goodput later")
			require.Greater(t, least, 0, "Bufs for what arrives")
			w := s.dial(s.a, s.b, 7, 5000)
			s.run(50, c.act)
			require.True(t, w.opened)
			for range 14 {
				s.u.toSend, s.v.toSend = s.u.sent, s.v.sent
				if w.edge == 0 {
					c.pass(second / 2)
				}
			}
			require.NotZero(t, w.edge, "a newcomer is served")
			h.check(s, c, *springs)
			s.end()
		})
	}
}
