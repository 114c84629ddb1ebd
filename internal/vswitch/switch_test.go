package vswitch

import (
	"context"
	"encoding/binary"
	"net"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/memif"
	"github.com/rnicd/rnicd/pmd/wire"
)

// running turns the cores while f runs. A core that finds nothing to do gives way to the other
// goroutines.
func (l *lab) running(f func(ctx context.Context)) {
	l.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	over := make(chan struct{})
	var ended sync.WaitGroup
	from := l.now
	for _, c := range l.sw.Cores() {
		ended.Go(func() {
			for now := from; ; now += 1000 {
				select {
				case <-over:
					return
				default:
					if c.Turn(now) == 0 {
						runtime.Gosched()
					}
				}
			}
		})
	}
	f(ctx)
	close(over)
	ended.Wait()
	l.now += 1e10
}

func (l *lab) apply(programs []Program) (ch Changes) {
	l.t.Helper()
	l.running(func(ctx context.Context) {
		ch = must(l.sw.Apply(ctx, programs))(l.t)
	})
	return ch
}

// Programs are added, removed and changed while others go on; those that stay keep their
// connection.
func TestApply(t *testing.T) {
	for _, cores := range []int{1, 2} {
		l := newLab(t, func(c *Config) {
			c.Cores = cores
			for i := range c.Programs {
				c.Programs[i].Core = i % cores
			}
		})
		one := l.sides["one"].port.(*memif.Port)
		down := make(chan struct{}, 9)
		require.NoError(t, one.WatchLink(func() { down <- struct{}{} }))
		next := slices.Clone(l.cfg.Programs)
		next = slices.Delete(next, 1, 2)          // two goes
		next[0].Addrs = []inet.Addr{ipOne}        // one loses its IPv6
		next[1].Ports = []PortRange{{1500, 1999}} // left and right divide ports again
		next[2].Ports = []PortRange{{1000, 1499}, {2000, 2000}}
		// on two's ID
		next = append(next, Program{Name: "new", Socket: next[0].Socket, ID: 1, MAC: macTwo,
			Addrs: []inet.Addr{ipTwo}})
		next = append(next, Program{Name: "far", Socket: next[0].Socket + "2", MAC: inet.MAC{2, 5: 88},
			Addrs: []inet.Addr{addr("10.9.0.88")}})
		for range 300 { // two never reads them: some wait when it goes
			l.uplink.send(segment(macTwo, macOut, ipOut, ipTwo, 1, 2))
		}
		l.turn()
		require.NotZero(t, l.stats("two").Waiting)
		ch := l.apply(next)
		require.Equal(t, Changes{Added: []string{"new", "far"}, Removed: []string{"two"},
			Changed: []string{"one", "left", "right"}}, ch)
		require.FileExists(t, next[0].Socket+"2")
		require.NoError(t, l.sides["two"].port.Close())
		delete(l.sides, "two")
		l.turn()
		l.requireWhole()
		l.attach(&next[4])
		l.attach(&next[5])
		ways := func(want, from string, f []byte) {
			t.Helper()
			l.side(from).send(f)
			l.turn()
			got := l.got()
			delete(got, "")
			found := ""
			for name := range got {
				found += name
			}
			require.Equal(t, want, found, "%v", l.drops(from))
		}
		ways("new", "out", segment(macTwo, macOut, ipOut, ipTwo, 1, 2))
		ways("far", "out", segment(inet.MAC{2, 5: 88}, macOut, ipOut, addr("10.9.0.88"), 1, 2))
		ways("right", "out", segment(macShared, macOut, ipOut, ipShared, 1, 1000))
		ways("left", "out", segment(macShared, macOut, ipOut, ipShared, 1, 1500))
		ways("", "right", segment(macOut, macShared, ipShared, ipOut, 3000, 9))
		ways("", "one", segment(macOut, macOne, ip6One, ip6Out, 3000, 9))
		ways("out", "one", segment(macOut, macOne, ipOne, ipOut, 3000, 9))
		require.True(t, one.LinkUp())
		require.Empty(t, down, "one has never attached again")
		// All but one go, their socket too; and what was changed not at all.
		require.Equal(t, Changes{}, l.apply(next))
		l.apply(next[:1])
		require.NoFileExists(t, next[0].Socket+"2")
		l.requireWhole()
	}
}

// What a program has counted stays with its name, whatever is changed of it, and while it is away.
func TestApplyKeepsCounts(t *testing.T) {
	l := newLab(t, func(c *Config) { c.Cores = 2 })
	counted := func() (st PortStats) {
		l.running(func(ctx context.Context) {
			all := must(l.sw.Stats(ctx))(t)
			st = all.Ports[1]
		})
		require.Equal(t, "one", st.Name)
		return st
	}
	next := slices.Clone(l.cfg.Programs)
	// use has one attach and send a frame.
	uses := uint64(0)
	use := func(what string) {
		t.Helper()
		one := &next[0]
		s, vid := l.sides["one"], one.VLAN
		if uses > 0 {
			require.NoError(t, s.port.Close())
			s = l.attach(one)
		}
		s.send(ether(macOut, one.MAC, vid, 0x806, arpFrame(macOut, announceOf(macOne))[14:]))
		uses++
		l.turn()
		st := counted()
		// each but the last may have come back once, after the change and before it was closed
		require.GreaterOrEqual(t, st.Attachments, uses, what)
		require.Less(t, st.Attachments, 2*uses, what)
		require.Equal(t, uses, st.Received, what)
		require.Equal(t, uses, st.Device.RxFrames, what)
	}
	use("as it was")
	for _, change := range []struct {
		what string
		do   func(*Program)
	}{
		{"mtu", func(p *Program) { p.MTU = 1400 }},
		{"queues", func(p *Program) { p.Queues = 2 }},
		{"secret", func(p *Program) { p.Secret = "s" }},
		{"id", func(p *Program) { p.ID = 77 }},
		{"mac", func(p *Program) { p.MAC = inet.MAC{2, 5: 77} }},
		{"core", func(p *Program) { p.Core = 1 }},
		{"vlan", func(p *Program) { p.VLAN = 7 }},
		{"uplink", func(p *Program) { p.Uplink = NoUplink }},
		{"socket", func(p *Program) { p.Socket += "2" }},
	} {
		change.do(&next[0])
		l.apply(next)
		require.Equal(t, uses, counted().Received, change.what)
		use(change.what)
	}
	l.apply(next[1:])
	l.apply(next)
	require.Equal(t, uses, counted().Received)
	use("away")
}

// All counters of a port are kept, and nothing else.
func TestAllCountersAreKept(t *testing.T) {
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				fill(v.Field(i))
			}
		case reflect.Array:
			for i := range v.Len() {
				fill(v.Index(i))
			}
		case reflect.Uint64:
			v.SetUint(3)
		}
	}
	var want, st PortStats
	fill(reflect.ValueOf(&want).Elem())
	before := want
	before.Name, before.Waiting, before.Attached, before.Peer = "one", 9, true, memif.Peer{PID: 7}
	st.count(&before)
	require.Equal(t, want, st)
}

// A change that is not valid changes nothing.
func TestApplyRefused(t *testing.T) {
	l := newLab(t, nil)
	refused := func(want string, change func([]Program) []Program) {
		t.Helper()
		l.running(func(ctx context.Context) {
			require.ErrorContains(t, errOf(l.sw.Apply(ctx, change(slices.Clone(l.cfg.Programs)))), want)
		})
		l.goes("two", "one", segment(macTwo, macOne, ipOne, ipTwo, 1, 2))
	}
	refused("there is no such uplink", func(p []Program) []Program { p[0].Uplink = 3; return p })
	refused("no folder for /nowhere/at/all: mkdir -p", func(p []Program) []Program {
		p[1].Socket = "/nowhere/at/all"
		return p
	})
	refused("MTU 9000", func(p []Program) []Program { p[1].MTU = 9000; return p })
	refused("may hold", func(p []Program) []Program { p[1].Buffers = BuffersMax; return p })
	refused("is \"one\"'s", func(p []Program) []Program { p[1].ID = 0; return p })
	// Cores that do not turn are not waited for, and do not do it later.
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	_, err := l.sw.Apply(ctx, l.cfg.Programs[:1])
	require.ErrorContains(t, err, "core 0 does not turn")
	require.ErrorIs(t, errOf(l.sw.Stats(ctx)), context.Canceled)
	l.goes("two", "one", segment(macTwo, macOne, ipOne, ipTwo, 1, 2))
}

// hoarder is a device that keeps some Bufs to receive into.
type hoarder struct {
	pmd.Port
	keeps int
}

func (h hoarder) Open(i int, pool *mem.Pool) (pmd.Queue, error) {
	if _, err := pool.Reserve(h.keeps); err != nil {
		return nil, err
	}
	return h.Port.Open(i, pool)
}

// What a device keeps is not promised to programs, at the beginning or later.
func TestDevicesKeepBuffers(t *testing.T) {
	const keeps = 1000
	buffers := 6*BuffersDefault + buffersSpare + keeps
	device := func(c *Config) {
		c.Uplinks[0].Port, c.Buffers = hoarder{c.Uplinks[0].Port, keeps}, buffers
	}
	l := newLab(t, device)
	more := slices.Clone(l.cfg.Programs)
	more[0].Buffers = BuffersDefault + 1
	l.running(func(ctx context.Context) {
		_, err := l.sw.Apply(ctx, more)
		require.ErrorContains(t, err,
			"may hold 3073 buffers; it has 5096, of which 1000 are kept to receive into")
	})
	cfg := l.cfg
	link := must(wire.New(wire.Config{}))(t)
	cfg.Uplinks, cfg.Programs = []Uplink{{Port: hoarder{link.Port(0), keeps + 1}}},
		programs(filepath.Join(t.TempDir(), "other.sock"))
	cfg.Arena = hugepages.Heap(32 << 20)
	require.ErrorContains(t, errOf(New(cfg)), "1001 are kept")
}

// What cannot be bound when the others have been changed is told, and the rest holds.
func TestApplyInPart(t *testing.T) {
	l := newLab(t, nil)
	for _, sock := range l.sw.sockets {
		require.NoError(t, sock.listener.Close())
	}
	other := slices.Clone(l.cfg.Programs)
	other[0].Name, other[0].MTU = "one again", 1400
	l.running(func(ctx context.Context) {
		ch, err := l.sw.Apply(ctx, other)
		var part *PartialError
		require.ErrorAs(t, err, &part)
		require.ErrorIs(t, err, memif.ErrClosed)
		require.Equal(t, Changes{Removed: []string{"one"}}, ch)
		st := must(l.sw.Stats(ctx))(t)
		require.Len(t, st.Ports, 1+len(other)-1)
	})
}

// A program with the largest MTU may come back after it has been taken out.
func TestLargestMTUComesBack(t *testing.T) {
	l := newLab(t, func(c *Config) { c.Programs[1].MTU = 9000 })
	l.running(func(ctx context.Context) {
		_, err := l.sw.Apply(ctx, l.cfg.Programs[:1])
		require.NoError(t, err)
		must(l.sw.Apply(ctx, l.cfg.Programs))(t)
	})
}

// Stats are of all cores and ports, by name, with the attached processes.
func TestStats(t *testing.T) {
	l := newLab(t, func(c *Config) { c.Cores = 2; c.Programs[1].Core = 1 })
	l.sides["one"].send(segment(macTwo, macOne, ipOne, ipTwo, 1, 2),
		segment(macTwo, macOut, ipOne, ipTwo, 1, 2))
	l.turn()
	l.running(func(ctx context.Context) {
		st := must(l.sw.Stats(ctx))(t)
		require.Len(t, st.Cores, 2)
		var names []string
		for _, p := range st.Ports {
			names = append(names, p.Name)
		}
		require.Equal(t, []string{"wire0", "one", "two", "left", "right", "tagged"}, names)
		one, two := st.Ports[1], st.Ports[2]
		require.EqualValues(t, 2, one.Received)
		require.EqualValues(t, 2*66, one.ReceivedOctets)
		require.Equal(t, map[string]uint64{"spoofed-mac": 1}, named(one.Drops))
		require.EqualValues(t, 1, two.Sent)
		require.True(t, two.Attached)
		require.EqualValues(t, os.Getpid(), two.Peer.PID)
		require.EqualValues(t, 1, two.Device.TxFrames)
	})
	require.NoError(t, l.sw.Close())
	_, err := l.sw.Stats(context.Background())
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, errOf(l.sw.Apply(context.Background(), nil)), ErrClosed)
}

// A client is admitted by its secret, its user or its group, which the kernel tells, and the
// interface that it asks for.
func TestWhoMayAttach(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s.sock")
	me, us := uint32(os.Getuid()), uint32(os.Getgid())
	all := programs(socket)[:2]
	for i := range all {
		all[i].Uplink = NoUplink
	}
	nothing := func(*Program) {}
	for _, tc := range []struct {
		change func(*Program)
		id     uint32
		secret string
		want   string // the reason of the refusal
	}{
		{nothing, 0, "", ""},
		{func(p *Program) { p.UIDs = []uint32{me + 1, me} }, 0, "", ""},
		{func(p *Program) { p.UIDs, p.GIDs = []uint32{me + 1}, []uint32{us} }, 0, "", ""},
		{func(p *Program) { p.UIDs = []uint32{me + 1} }, 0, "", "may not attach as one"},
		{func(p *Program) { p.GIDs = []uint32{us + 1} }, 0, "", "may not attach as one"},
		{func(p *Program) { p.Secret = "psst" }, 0, "", "Secret required"},
		{func(p *Program) { p.Secret = "psst" }, 0, "pst", "Incorrect secret"},
		{func(p *Program) { p.Secret = "psst" }, 0, "psst", ""},
		{nothing, 7, "", "ID not found"},
	} {
		cfg := Config{Programs: slices.Clone(all)}
		tc.change(&cfg.Programs[0])
		cfg.Arena = hugepages.Heap(int(cfg.MemoryBytes(0)) + 1<<20)
		sw := must(New(cfg))(t)
		reason := askToAttach(t, socket, tc.id, tc.secret)
		require.NoError(t, sw.Close())
		if tc.want == "" {
			require.Empty(t, reason)
		}
		require.Contains(t, reason, tc.want)
	}
}

// askToAttach is a client that asks for an interface; reason is why it is refused, empty if it is
// not.
func askToAttach(t *testing.T, socket string, id uint32, secret string) (reason string) {
	t.Helper()
	conn := must(net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: socket, Net: "unixpacket"}))(t)
	defer conn.Close()
	require.NoError(t, conn.SetDeadline(time.Now().Add(patience)))
	h := &hostile{t: t, conn: conn}
	require.Equal(t, make([]byte, 4), h.next()[40:44],
		"HELLO: the highest ring of each direction is ring 0")
	must(conn.Write(initMessage(id, secret)))(t)
	answer := h.next()
	if binary.NativeEndian.Uint16(answer) == msgACK {
		return ""
	}
	require.EqualValues(t, msgDisconnect, binary.NativeEndian.Uint16(answer))
	text, _, _ := strings.Cut(string(answer[disconnectText:]), "\x00")
	return text
}

// A user that is taken out loses the connection that it has, and is told why; one that stays, or is
// let in, keeps it.
func TestUserTakenOut(t *testing.T) {
	l := newLab(t, nil)
	me := uint32(os.Getuid())
	next := slices.Clone(l.cfg.Programs)
	next[0].UIDs, next[1].UIDs, next[2].UIDs, next[2].GIDs = []uint32{me + 1}, []uint32{me},
		[]uint32{me + 1}, []uint32{uint32(os.Getgid())}
	require.Equal(t, Changes{Changed: []string{"one", "two", "left"}}, l.apply(next))
	l.awaitAttached(map[string]bool{"one": false, "two": true, "left": true})
	one := l.sides["one"].port.(*memif.Port)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	require.NoError(t, one.AwaitLink(ctx, false))
	for _, p := range l.sw.Peers()[:3] {
		require.Equal(t, p.Name != "one", p.Attached, p.Name)
		if p.Name == "one" {
			require.ErrorContains(t, p.Err, "may not attach as one")
		} else {
			require.EqualValues(t, 1, l.sides[p.Name].port.(*memif.Port).LinkUps(), p.Name)
		}
	}
}

// A Config that is not valid is refused with the reason.
func TestConfigsThatCannotBe(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s.sock")
	for want, change := range map[string]func(*Config, []Program){
		"17 cores":                   func(c *Config, _ []Program) { c.Cores = 17 },
		"no Arena":                   func(c *Config, _ []Program) { c.Arena = nil },
		"multicast":                  func(c *Config, _ []Program) { c.Multicast = -1 },
		"may hold":                   func(c *Config, _ []Program) { c.Buffers = 2000 },
		"name: want 1":               func(_ *Config, p []Program) { p[0].Name = "" },
		`"one" is program 0's`:       func(_ *Config, p []Program) { p[1].Name = "one" },
		"socket: missing":            func(_ *Config, p []Program) { p[0].Socket = "" },
		"the address of one station": func(_ *Config, p []Program) { p[0].MAC = inet.MAC{1} },
		"addresses: 0 of them":       func(_ *Config, p []Program) { p[0].Addrs = nil },
		"unicast address":            func(_ *Config, p []Program) { p[0].Addrs[0] = addr("224.0.0.1") },
		"twice":                      func(_ *Config, p []Program) { p[0].Addrs[1] = ipOne },
		"no such uplink":             func(_ *Config, p []Program) { p[0].Uplink = 0 },
		"core: 1":                    func(_ *Config, p []Program) { p[0].Core = 1 },
		"vlan: 4095":                 func(_ *Config, p []Program) { p[0].VLAN = 4095 },
		"queues: 17":                 func(_ *Config, p []Program) { p[0].Queues = 17 },
		"buffers: 31":                func(_ *Config, p []Program) { p[0].Buffers = 31 },
		"rate":                       func(_ *Config, p []Program) { p[0].Send.Octets = -1 },
		"the first and the last":     func(_ *Config, p []Program) { p[2].Ports = []PortRange{{5, 4}} },
		"has some of them; programs that": func(_ *Config, p []Program) {
			p[1].Addrs = []inet.Addr{ipOne}
		},
		"share its MAC": func(_ *Config, p []Program) {
			p[3].MAC = macTwo
			p[1].MAC = inet.MAC{2, 5: 99}
		},
		"each needs TCP ports": func(_ *Config, p []Program) { p[3].Ports = nil },
		`1999-2500: "left" has some`: func(_ *Config, p []Program) {
			p[3].Ports = []PortRange{{1999, 2500}}
		},
		"link-local address of": func(_ *Config, p []Program) {
			p[1].Addrs = append(p[1].Addrs, inet.LinkLocal(macOne))
		},
		"its link-local address": func(_ *Config, p []Program) {
			p[0].Addrs = append(p[0].Addrs, inet.LinkLocal(macTwo))
		},
		"each station has its own":         func(_ *Config, p []Program) { p[1].MAC = macOne },
		"0 on " + socket + ` is "one"'s`:   func(_ *Config, p []Program) { p[1].ID = 0 },
		"is another server's, or not ours": nil,
	} {
		if change == nil {
			continue
		}
		cfg := Config{Arena: hugepages.Heap(32 << 20), Programs: programs(socket)}
		for i := range cfg.Programs {
			cfg.Programs[i].Uplink = NoUplink
		}
		change(&cfg, cfg.Programs)
		require.ErrorContains(t, errOf(New(cfg)), want)
		require.NoFileExists(t, socket)
	}
	many := make([]Program, ProgramsMax+1)
	_, err := New(Config{Arena: hugepages.Heap(4096), Programs: many})
	require.ErrorContains(t, err, "1025 programs")
	sharers := make([]Program, SharersMax+1)
	for i := range sharers {
		sharers[i] = Program{Name: string(rune('a'+i%26)) + string(rune('a'+i/26)), Socket: "x",
			ID: uint32(i), MAC: macOne, Addrs: []inet.Addr{ipOne}, Uplink: NoUplink,
			Ports: []PortRange{{uint16(i + 1), uint16(i + 1)}}}
	}
	require.ErrorContains(t, CheckPrograms(sharers, 1, 0), "33 programs have them")
	require.NoError(t, CheckPrograms(sharers[:SharersMax], 1, 0))
}

// The table finds what a map finds. A switch that cannot be made gives back what there was of it:
// the sockets of programs before the one whose socket cannot be.
func TestNewGivesBack(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "s.sock")
	cfg := Config{Programs: slices.Clone(programs(socket)[:2])}
	for i := range cfg.Programs {
		cfg.Programs[i].Uplink = NoUplink
	}
	good := cfg.Programs[1].Socket
	cfg.Programs[1].Socket = "/nowhere/at/all"
	cfg.Arena = hugepages.Heap(int(cfg.MemoryBytes(0)) + 1<<20)
	sw, err := New(cfg)
	require.Nil(t, sw)
	require.ErrorContains(t, err, "no folder for /nowhere/at/all: mkdir -p")
	require.NoFileExists(t, socket)
	cfg.Programs[1].Socket = good
	cfg.Arena = hugepages.Heap(int(cfg.MemoryBytes(0)) + 1<<20)
	sw = must(New(cfg))(t)
	require.NoError(t, sw.Close())
}

func TestMACTable(t *testing.T) {
	r := newRand(t)
	for range 50 {
		n := 1 + r.IntN(300)
		table, oracle := newMACTable(n), map[uint64]*station{}
		for len(oracle) < n {
			key := r.Uint64() >> (r.IntN(60))
			if oracle[key] == nil {
				oracle[key] = &station{}
				table.add(key, oracle[key])
			}
		}
		for key, s := range oracle {
			require.Same(t, s, table.find(key))
			require.Equal(t, oracle[key+1], table.find(key+1))
		}
	}
}

// A program's memory is let go of when it ends, whatever it was about: one that attaches again
// and again costs nothing.
func TestAttachingAgainCostsNothing(t *testing.T) {
	l := newLab(t, nil)
	count := func() int {
		fds := must(os.ReadDir("/proc/self/fd"))(t)
		return len(fds)
	}
	again := func() {
		s := l.sides["two"]
		for range 50 {
			l.sides["one"].send(segment(macTwo, macOne, ipOne, ipTwo, 1, 2))
			s.send(segment(macOne, macTwo, ipTwo, ipOne, 1, 2))
		}
		l.sw.Cores()[0].Turn(l.now + 1)
		require.NoError(t, s.port.Close())
		l.awaitAttached(map[string]bool{"two": false})
		l.attach(&l.cfg.Programs[1])
		l.got()
	}
	again()
	before := count()
	for range 20 {
		again()
	}
	require.Eventually(t, func() bool {
		l.turn()
		return count() <= before
	}, patience, time.Millisecond, "%d descriptors before", before)
	l.turn()
	l.got()
	l.turn()
	l.requireWhole()
}

// errOf is the error of a call whose other result does not matter.
func errOf[V any](_ V, err error) error { return err }
