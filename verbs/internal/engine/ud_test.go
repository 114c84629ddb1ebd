package engine

import (
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/wq"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
	"github.com/rnicd/rnicd/verbs/internal/ring"
)

// udProgram is a program on the device as RoCE over the kernel's sockets, with memory that is
// registered at its address.
type udProgram struct {
	*program
	memory []byte
	stag   uint64
}

const udMemory = 1 << 20

func newUDProgram(t *testing.T) *udProgram {
	t.Helper()
	p := unstarted(t)
	e := p.engine
	cfg := Limits()
	cfg.OnTurn = e.onTurn
	cfg.Bell = &stack.Bell{Asleep: &p.area.Dozing, FD: int(p.area.BellFD), Crowded: &p.area.Crowded}
	e.start(Host{Adapter: must(rnic.Open(cfg))(t), Polled: true, RoCE: true})
	go e.run()
	u := &udProgram{program: p}
	u.open()
	return u
}

// open opens the device, and registers memory.
func (p *udProgram) open() {
	p.program.open()
	p.memory = must(unix.Mmap(-1, 0, udMemory, unix.PROT_READ|unix.PROT_WRITE,
		unix.MAP_PRIVATE|unix.MAP_ANON))(p.t)
	at := p.address(0)
	p.stag = p.do(ring.RegMR, p.pd, at, udMemory, at, accessLocalWrite)[1]
}

func (p *udProgram) address(off int) uint64 {
	return uint64(uintptr(unsafe.Pointer(&p.memory[0]))) + uint64(off)
}

func (p *udProgram) sge(off, n int) wq.SGE {
	return wq.SGE{Offset: p.address(off), Length: uint32(n), STag: wq.STag(p.stag)}
}

// udEnd is a queue pair for datagrams.
type udEnd struct {
	*testQP
	p              *udProgram
	posted, polled uint32
	buffers        uint32
}

func (p *udProgram) newEnd(state, qkey uint64) *udEnd {
	p.t.Helper()
	u := &udEnd{p: p, testQP: p.newQueues(ring.CreateUD, 256, 128, 3)}
	p.do(ring.ModifyUD, u.handle, state, qkey)
	return u
}

var udHere = gid(netip.MustParseAddr("127.0.0.1").As16())

// to makes w a Send to another end.
func (w0 udSend) to(number uint32, qkey uint32) wq.WQE {
	w := wq.WQE{ID: w0.id, Op: wq.OpSend, Flags: wq.FlagSignaled | w0.flags, Local: w0.local,
		RemoteSTag: wq.STag(qkey), RemoteOffset: uint64(number)}
	w.Operands[0] = binary.NativeEndian.Uint64(udHere[:8])
	w.Operands[1] = binary.NativeEndian.Uint64(udHere[8:])
	return w
}

type udSend struct {
	id    uint64
	flags wq.Flags
	local wq.SGE
}

// send posts w, with entries that follow it.
func (u *udEnd) send(w wq.WQE, more ...wq.WQE) {
	for _, e := range append([]wq.WQE{w}, more...) {
		u.sends[int(u.posted)%len(u.sends)] = e
		u.posted++
	}
	atomic.StoreUint32(&u.sq.Tail, u.posted)
	u.p.ring(u)
}

// ring rings the doorbell, and the bell if the loop sleeps.
func (p *udProgram) ring(u *udEnd) {
	atomic.OrUint64(&p.area.Doorbells[u.bit/64], 1<<(u.bit%64))
	atomic.OrUint64(&p.area.Summary, 1<<(u.bit/64))
	p.engine.rouse()
}

// recv posts a buffer.
func (u *udEnd) recv(id uint64, s wq.SGE, list ...wq.SGE) {
	u.recvs[int(u.buffers)%len(u.recvs)] = wq.WQE{ID: id, Op: wq.OpRecv, Local: s,
		More: uint8(len(list))}
	u.buffers++
	if len(list) > 0 {
		copy(u.recvs[int(u.buffers)%len(u.recvs)].Ranges()[:], list)
		u.buffers++
	}
	atomic.StoreUint32(&u.rq.Tail, u.buffers)
}

// poll waits for the next completion.
func (u *udEnd) poll() wq.CQE {
	slot := &u.done[int(u.polled)%len(u.done)]
	until(func() bool { return wq.There(slot, u.polled) })
	c := *slot
	u.polled++
	atomic.StoreUint32(&u.cq.Head, u.polled)
	return c
}

func (p *udProgram) drops() (d [ring.Drops]uint64) {
	for i := range d {
		d[i] = atomic.LoadUint64(&p.area.Drops[i])
	}
	return d
}

const udKey = 0x11111111

// Datagrams within a process: what is sent arrives after 40 octets of the IP header, in the ranges
// of the buffer, with the sender's number and immediate data; out of ranges of memory or inline;
// and to the queue pair itself.
func TestUD(t *testing.T) {
	p := newUDProgram(t)
	a, b := p.newEnd(udRTS, udKey), p.newEnd(udRTR, udKey)
	copy(p.memory, "from memory")
	b.recv(1, p.sge(4096, 43), p.sge(8192, 100))
	w := udSend{id: 5, local: p.sge(0, 4)}.to(b.number, udKey)
	w.More, w.Flags = 2, w.Flags|wq.FlagSolicited
	var list wq.WQE
	*list.Ranges() = [4]wq.SGE{p.sge(4, 3), p.sge(7, 4)}
	a.send(w, list)
	c := a.poll()
	require.Equal(t, wq.CQE{ID: 5, QP: a.number, Op: wq.OpSend}, clean(c))
	c = b.poll()
	require.Equal(t, wq.CQE{ID: 1, QP: b.number, Len: 40 + 11, Op: wq.OpRecv, Solicited: true,
		Original: wq.DatagramFromV4 | uint64(a.number)}, clean(c))
	require.Equal(t, "fro", string(p.memory[4096+40:][:3]))
	require.Equal(t, "m memory", string(p.memory[8192:][:8]))
	var grh [grhLen]byte
	putGRH(&grh, &udHere, &udHere, 0, udHeaderLen+11)
	require.Equal(t, grh[:], p.memory[4096:][:grhLen])

	b.recv(2, p.sge(4096, 200))
	w = udSend{id: 6, flags: wq.FlagInline, local: wq.SGE{Length: 6}}.to(b.number, udKey)
	w.RemoteOffset |= wq.DatagramImmediate
	imm := [4]byte{9, 8, 7, 6}
	w.Operands[2] = uint64(binary.NativeEndian.Uint32(imm[:]))
	var inline wq.WQE
	copy(inline.Octets()[:], "inline")
	a.send(w, inline)
	require.EqualValues(t, wq.Success, a.poll().Status)
	c = b.poll()
	require.True(t, c.WithImmediate)
	require.Equal(t, imm[:], c.Immediate[:4])
	require.EqualValues(t, 46, c.Len)
	require.Equal(t, "inline", string(p.memory[4096+40:][:6]))

	a.recv(3, p.sge(4096, 40))
	w = udSend{id: 7}.to(a.number, udKey)
	w.Flags = 0
	a.send(w)
	c = a.poll()
	require.Equal(t, wq.CQE{ID: 3, QP: a.number, Len: 40, Op: wq.OpRecv,
		Original: wq.DatagramFromV4 | uint64(a.number)}, clean(c))
	require.Zero(t, p.drops())
	for _, u := range []*udEnd{a, b} {
		p.do(ring.DestroyUD, u.handle)
	}
}

// clean is c without what says where it stands in its ring.
func clean(c wq.CQE) (d wq.CQE) {
	d = wq.CQE{ID: c.ID, QP: c.QP, Len: c.Len, Op: c.Op, Status: c.Status, Solicited: c.Solicited,
		WithImmediate: c.WithImmediate, Original: c.Original}
	return d
}

// A datagram that is not for this queue pair, or that has no buffer, is dropped and counted; the
// next one finds the buffer. Nothing that a stranger sends does more.
func TestUDDrops(t *testing.T) {
	p := newUDProgram(t)
	b := p.newEnd(udRTR, udKey)
	fresh := p.newEnd(1, udKey)
	port := int(portOf(b.number))
	peer := must(net.DialUDP("udp4", nil, &net.UDPAddr{IP: udHere[12:], Port: port}))(t)
	defer peer.Close()
	self := uint32(peer.LocalAddr().(*net.UDPAddr).Port)
	fromSlot := must(net.ListenUDP("udp4", &net.UDPAddr{IP: udHere[12:], Port: freeSlot(t)}))(t)
	defer fromSlot.Close()
	source := uint32(fromSlot.LocalAddr().(*net.UDPAddr).Port-slotPort) << numberBits
	send := func(c *net.UDPConn, b []byte) {
		var err error
		if c == peer {
			_, err = c.Write(b)
		} else {
			_, err = c.WriteTo(b, peer.RemoteAddr())
		}
		require.NoError(t, err)
	}
	datagram := func(h udHeader, message string) []byte {
		var b [udHeaderLen]byte
		h.put(&b)
		return append(b[:], message...)
	}
	ours := udHeader{destination: b.number, source: source | 9, qkey: udKey}
	with := func(change func(h *udHeader)) udHeader {
		h := ours
		change(&h)
		return h
	}
	send(fromSlot, datagram(ours, "no buffer"))
	until(func() bool { return p.drops()[ring.DropNoBuffer] == 1 })
	b.recv(1, p.sge(0, 40+8))
	var want [ring.Drops]uint64
	want[ring.DropNoBuffer] = 1
	for i, x := range []struct {
		from   *net.UDPConn
		octets []byte
		why    int
	}{
		{peer, nil, ring.DropMalformed},
		{fromSlot, datagram(ours, "")[:udHeaderLen-1], ring.DropMalformed},
		{fromSlot, []byte(strings.Repeat("noise", 800)), ring.DropMalformed},
		{fromSlot, datagram(ours, strings.Repeat("long", 1025)), ring.DropMalformed},
		{peer, datagram(ours, "its port is another"), ring.DropMalformed},
		{fromSlot, datagram(with(func(h *udHeader) { h.source = self }), ""), ring.DropMalformed},
		{fromSlot, datagram(with(func(h *udHeader) { h.destination ^= 1 << 7 }), ""), ring.DropNumber},
		{fromSlot, datagram(with(func(h *udHeader) { h.destination ^= 1 << 20 }), ""), ring.DropNumber},
		{fromSlot, datagram(with(func(h *udHeader) { h.destination = fresh.number }), ""),
			ring.DropNumber},
		{fromSlot, datagram(with(func(h *udHeader) { h.destination = groupNumber }), ""),
			ring.DropNumber}, // to no group
		{fromSlot, datagram(with(func(h *udHeader) { h.destination = 0 }), ""), ring.DropNumber},
		{fromSlot, datagram(with(func(h *udHeader) { h.qkey++ }), ""), ring.DropQKey},
		{fromSlot, datagram(ours, "too long!"), ring.DropTooLong},
	} {
		send(x.from, x.octets)
		want[x.why]++
		until(func() bool { return p.drops() == want })
		require.False(t, wq.There(&b.done[0], 0), "datagram %d", i)
	}
	send(fromSlot, datagram(ours, "it fits"))
	c := b.poll()
	require.EqualValues(t, 47, c.Len)
	require.EqualValues(t, wq.DatagramFromV4|uint64(ours.source), c.Original)
	require.Equal(t, "it fits", string(p.memory[40:47]))
	require.Equal(t, want, p.drops())

	// The GRH is what the kernel tells, whatever a message says; what is sent twice comes twice.
	var forged, grh [grhLen]byte
	elsewhere := gid(netip.MustParseAddr("192.0.2.1").As16())
	putGRH(&forged, &elsewhere, &udHere, 0, udHeaderLen+grhLen)
	putGRH(&grh, &udHere, &udHere, 0, udHeaderLen+grhLen)
	for id := range uint64(2) {
		b.recv(2+id, p.sge(0, 40+grhLen))
		send(fromSlot, datagram(ours, string(forged[:])))
		require.EqualValues(t, 2+id, b.poll().ID)
		require.Equal(t, grh[:], p.memory[:grhLen])
		require.Equal(t, forged[:], p.memory[40:][:grhLen])
	}
}

// freeSlot is a port of the range that nobody has.
func freeSlot(t *testing.T) int {
	for port := slotPort; ; port++ {
		c, err := net.ListenPacket("udp4", fmt.Sprintf("127.0.0.1:%d", port))
		if err == nil {
			require.NoError(t, c.Close())
			return port
		}
	}
}

// A request that cannot be carried out completes with an error after those before it; what follows
// is flushed, receive buffers too, and so is what is posted later. The completion is all that is
// told of it. RESET is a new beginning.
func TestUDErrors(t *testing.T) {
	for name, x := range map[string]struct {
		w    udSend
		op   wq.Opcode
		want wq.Status
	}{
		"not registered": {udSend{id: 2, local: wq.SGE{Length: 8}}, wq.OpSend, wq.LocalProtection},
		"too long": {udSend{id: 2, local: wq.SGE{Length: ring.DatagramMax + 1}}, wq.OpSend,
			wq.LocalLength},
		"a Write": {udSend{id: 2}, wq.OpWrite, wq.LocalOperation},
		"unmapped": {udSend{id: 2, local: wq.SGE{Offset: udMemory - 4096, Length: 8, STag: 1}},
			wq.OpSend, wq.LocalProtection},
	} {
		t.Run(name, func(t *testing.T) {
			p := newUDProgram(t)
			a := p.newEnd(udRTS, udKey)
			a.recv(10, p.sge(0, 100))
			if x.w.local.STag == 1 {
				x.w.local = p.sge(udMemory-4096, 8)
				require.NoError(t, unix.Mprotect(p.memory[udMemory-4096:], unix.PROT_NONE))
			}
			nowhere := a.number ^ 1<<7
			for _, w := range []udSend{{id: 1}, x.w, {id: 3}} {
				e := w.to(nowhere, udKey)
				if w.id == 2 {
					e.Op, e.Flags = x.op, 0
				}
				a.sends[a.posted] = e
				a.posted++
			}
			atomic.StoreUint32(&a.sq.Tail, a.posted)
			p.ring(a)
			for _, want := range []struct {
				id uint64
				st wq.Status
			}{{1, wq.Success}, {2, x.want}, {3, wq.Flushed}, {10, wq.Flushed}} {
				c := a.poll()
				require.Equal(t, want.id, c.ID)
				require.Equal(t, want.st, c.Status)
			}
			p.hasNoEvent()
			require.EqualValues(t, 1, atomic.LoadUint32(&a.sq.Over)&atomic.LoadUint32(&a.rq.Over))
			a.recv(11, p.sge(0, 100))
			a.send(udSend{id: 12}.to(nowhere, udKey))
			require.EqualValues(t, 12, a.poll().ID)
			require.EqualValues(t, 11, a.poll().ID)

			a.recv(13, p.sge(0, 100))
			p.do(ring.ModifyUD, a.handle, udReset, 0)
			a.posted, a.buffers = 0, 0
			require.Zero(t, atomic.LoadUint32(&a.sq.Over)|atomic.LoadUint32(&a.rq.Over))
			p.do(ring.ModifyUD, a.handle, udRTS, udKey)
			a.recv(14, p.sge(0, 100))
			a.send(udSend{id: 15}.to(a.number, udKey))
			require.EqualValues(t, 15, a.poll().ID)
			require.EqualValues(t, 14, a.poll().ID)
		})
	}
}

// hasNoEvent fails if the program has an asynchronous event to read.
func (p *program) hasNoEvent() {
	p.t.Helper()
	fds := []unix.PollFd{{Fd: int32(p.events), Events: unix.POLLIN}}
	require.Zero(p.t, must(unix.Poll(fds, 0))(p.t))
}

// A receive buffer that cannot be filled completes with an error, and is all that is told.
func TestUDReceiveError(t *testing.T) {
	p := newUDProgram(t)
	a, b := p.newEnd(udRTS, udKey), p.newEnd(udRTS, udKey)
	a.recv(1, wq.SGE{Offset: p.address(0), Length: 100}) // no region has this key
	a.recv(2, p.sge(0, 100))
	b.send(udSend{id: 3, local: p.sge(4096, 8)}.to(a.number, udKey))
	for id, want := range []wq.Status{wq.LocalProtection, wq.Flushed} {
		c := a.poll()
		require.EqualValues(t, 1+id, c.ID)
		require.Equal(t, want, c.Status)
	}
	p.hasNoEvent()
}

// Whatever a program writes into the rings ends its own queue pair at most.
func TestUDBrokenRing(t *testing.T) {
	p := newUDProgram(t)
	for _, send := range []bool{true, false} {
		a := p.newEnd(udRTS, udKey)
		if send {
			atomic.StoreUint32(&a.sq.Tail, uint32(len(a.sends))+1)
		} else {
			atomic.StoreUint32(&a.rq.Tail, uint32(len(a.recvs))+1)
			a.send(udSend{id: 1}.to(a.number, udKey))
		}
		p.ring(a)
		require.Equal(t, ring.AsyncEvent{Cookie: 7, Type: eventQPFatal}, p.event())
	}
	_, err := p.call(ring.CreateUD, nil, p.pd, 0, 0, 0, 1, 1, 1, 0, 7, p.ctx)
	require.Equal(t, syscall.EINVAL, err)
}

// A short datagram is what it was when it was posted, as far as its range may be read: the program
// copies it into the ring.
func TestUDShort(t *testing.T) {
	p := newUDProgram(t)
	a := p.newEnd(udRTS, udKey)
	copy(p.memory, "memory")
	var copied wq.WQE
	copy(copied.Octets()[:], "copied")
	for _, local := range []wq.SGE{p.sge(0, 6), {Offset: p.address(0), Length: 6}} {
		a.recv(1, p.sge(4096, 200))
		a.send(udSend{id: 2, flags: wq.FlagInline, local: local}.to(a.number, udKey), copied)
		c := a.poll()
		if local.STag == 0 {
			require.Equal(t, wq.LocalProtection, c.Status)
			continue
		}
		require.Equal(t, wq.Success, c.Status)
		require.EqualValues(t, 46, a.poll().Len)
		require.Equal(t, "copied", string(p.memory[4096+40:][:6]))
	}
}

// A datagram costs no memory.
func TestUDAllocates(t *testing.T) {
	p := newUDProgram(t)
	a := p.newEnd(udRTS, udKey)
	one := func() {
		a.recv(1, p.sge(0, 4096))
		a.send(udSend{id: 2, local: p.sge(4096, 64)}.to(a.number, udKey))
		a.poll()
		a.poll()
	}
	one()
	const rounds = 100
	require.Less(t, testing.AllocsPerRun(rounds, one), 1.0)
}
