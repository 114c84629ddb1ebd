package memif

import (
	"encoding/binary"
	"math/rand/v2"
	"net"
	"slices"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// rings are those of queue 0 as the side itself sees them: what the other end may scribble on.
func (s *side) rings() pair { return s.port.current.Load().rings[0] }

// What a client puts into descriptors of frames reaches no other client's memory; the frame is
// dropped and counted, and the next one passes.
func TestHostileFramesToServer(t *testing.T) {
	for name, c := range map[string]struct {
		descs []desc
		drops Drops
		count pmd.Counters
	}{
		"no such region": {[]desc{newDesc(0, 1, 60, 0)}, Drops{Descriptor: 1}, pmd.Counters{RxErrors: 1}},
		"last region": {[]desc{newDesc(0, 65535, 60, 0)}, Drops{Descriptor: 1},
			pmd.Counters{RxErrors: 1}},
		"beyond the end": {[]desc{newDesc(0, 0, 60, 1<<32-1)}, Drops{Descriptor: 1},
			pmd.Counters{RxErrors: 1}},
		"across the end": {[]desc{newDesc(0, 0, 60, rawBytes-59)}, Drops{Descriptor: 1},
			pmd.Counters{RxErrors: 1}},
		"longest": {[]desc{newDesc(0, 0, 1<<32-1, 1<<32-1)}, Drops{Descriptor: 1},
			pmd.Counters{RxErrors: 1}},
		"sum wraps": {[]desc{newDesc(0, 0, 1<<32-60, 60)}, Drops{Descriptor: 1},
			pmd.Counters{RxErrors: 1}},
		"empty": {[]desc{newDesc(0, 0, 0, 0)}, Drops{Descriptor: 1},
			pmd.Counters{RxErrors: 1}},
		"short":             {[]desc{newDesc(0, 0, 13, 0)}, Drops{Length: 1}, pmd.Counters{RxErrors: 1}},
		"long":              {[]desc{newDesc(0, 0, 1523, 0)}, Drops{}, pmd.Counters{RxTooLong: 1}},
		"longer than a Buf": {[]desc{newDesc(0, 0, 60000, 0)}, Drops{}, pmd.Counters{RxTooLong: 1}},
		"long in pieces": {[]desc{newDesc(1, 0, 1500, 0), newDesc(0, 0, 23, 0)}, Drops{},
			pmd.Counters{RxTooLong: 1}},
		"never ends": {[]desc{newDesc(1, 0, 60, 0), newDesc(1, 0, 60, 0)}, Drops{Descriptor: 1},
			pmd.Counters{RxErrors: 1}},
		"bad second": {[]desc{newDesc(1, 0, 60, 0), newDesc(0, 9, 60, 0)}, Drops{Descriptor: 1},
			pmd.Counters{RxErrors: 1}},
		"unknown flags pass": {[]desc{newDesc(0xfffe, 0, 60, 0)}, Drops{},
			pmd.Counters{RxFrames: 1, RxOctets: 60}},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHostileClient(t)
			h.put(c.descs...)
			require.Len(t, h.server.take(0), int(c.count.RxFrames))
			require.Equal(t, c.drops, h.server.queues[0].Drops())
			require.Equal(t, c.count, h.server.queues[0].Counters())
			copy(h.memory[4096:], "twelve octet\x88\xb5 and a frame")
			h.put(newDesc(0, 0, 26, 4096))
			require.Equal(t, [][]byte{[]byte("twelve octet\x88\xb5 and a frame")[:26]}, h.server.take(0))
			h.server.closed(t)
		})
	}
}

// hostileClient is a client whose rings the test fills by hand: 16 descriptors each.
type hostileClient struct {
	*rawClient
	server *side
	l      *Listener
	memory []byte
	fd     int
	tx, rx ring
	next   uint16
}

func newHostileClient(t *testing.T) *hostileClient {
	t.Helper()
	return newHostile(t, ListenConfig{}, layout{})
}

func newHostile(t *testing.T, cfg ListenConfig, lay layout) *hostileClient {
	t.Helper()
	l := listen(t, cfg)
	server := bind(t, l, BindConfig{}, 64)
	h := &hostileClient{rawClient: rawDial(t, l.cfg.Socket), server: server, l: l}
	h.memory, h.fd = h.attached(lay)
	h.connect()
	h.tx, h.rx = ringAt(h.memory, 0, 4), ringAt(h.memory, 1024, 4)
	return h
}

func (c *rawClient) connect() {
	c.t.Helper()
	c.tells(interfaceMessage(msgConnect, "x"), -1)
	require.Equal(c.t, msgConnected, c.next().typ())
}

// put sends descriptors as frames.
func (h *hostileClient) put(descs ...desc) {
	for _, d := range descs {
		h.tx.store(h.next, d)
		h.next++
	}
	h.tx.advance(uint16(len(descs)))
}

// post has the server find buffers.
func (h *hostileClient) post(descs ...desc) {
	for i, d := range descs {
		h.rx.store(h.rx.head()+uint16(i), d)
	}
	h.rx.advance(uint16(len(descs)))
}

// Buffers that a client posts may be anything: a frame that does not go into them is lost, the
// next one is sent.
func TestHostileBuffersToServer(t *testing.T) {
	for name, descs := range map[string][]desc{
		"no such region":   {newDesc(0, 1, 2048, 0)},
		"beyond the end":   {newDesc(0, 0, 2048, 1<<32-1)},
		"across the end":   {newDesc(0, 0, 2048, rawBytes-2047)},
		"sum wraps":        {newDesc(0, 0, 1<<32-1, 1)},
		"empty":            {newDesc(0, 0, 0, 4096)},
		"bad second piece": {newDesc(0, 0, 30, 4096), newDesc(0, 0, 30, 1<<31)},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHostileClient(t)
			h.post(append(descs, newDesc(0, 0, 2048, 8192))...)
			r := newRand(t)
			lost, sent := frame(r, 60), frame(r, 61)
			h.server.send(t, 0, lost, sent)
			require.Equal(t, Drops{Descriptor: 1}, h.server.queues[0].Drops())
			require.EqualValues(t, 1, h.server.queues[0].Counters().TxErrors)
			require.EqualValues(t, len(descs)+1, h.rx.tail())
			for i := range descs {
				require.Zero(t, h.rx.load(uint16(i)).length(), "given back empty")
			}
			require.EqualValues(t, 61, h.rx.load(uint16(len(descs))).length())
			require.Equal(t, sent, h.memory[8192:][:61])
			h.server.closed(t)
		})
	}
}

// A frame that needs more pieces than we look at is lost: a client cannot make the server walk
// for long.
func TestPiecesAreBounded(t *testing.T) {
	m := newMemoryPair(t, 10, 2048, false)
	for i := range uint16(1024) {
		m.client.ring.store(i, newDesc(0, 0, 1, 0))
	}
	m.server.send(t, 0, frame(newRand(t), 300))
	require.Equal(t, Drops{Descriptor: 1}, m.server.queues[0].Drops())
	require.EqualValues(t, piecesMax, m.client.ring.tail())
}

// A user's connections that say nothing leave room for others, however few may attach, and one that
// has said which interface it wants is none of those. Those of many users are bounded too.
func TestStrangersLeaveRoom(t *testing.T) {
	l := listen(t, ListenConfig{ClientsMax: 2, Backlog: 1})
	rawDial(t, l.cfg.Socket).init()
	for range strangersMin {
		rawDial(t, l.cfg.Socket)
	}
	addr := must(address(l.cfg.Socket))(t)
	conn := must(net.DialUnix(addr.Net, nil, addr))(t)
	defer conn.Close()
	(&rawClient{&control{conn: conn}, t}).refused("Too many clients")
	other := &control{}
	require.NoError(t, l.add(other, 1<<30), "another user")
	require.NoError(t, l.recognize(other, 1<<30))
	require.ErrorContains(t, l.recognize(&control{}, 1<<30), "Too many clients")
	l.remove(other, 1<<30)
	var strangers []*control
	for i := range 3 * strangersMin {
		strangers = append(strangers, &control{})
		require.NoError(t, l.add(strangers[i], uint32(1<<30+i)))
	}
	require.ErrorContains(t, l.add(other, 1<<29), "Too many clients")
	for i, c := range strangers {
		l.remove(c, uint32(1<<30+i))
	}
	require.Len(t, l.strange, 1)
}

// A region that has gone when the connection is to begin leaves no descriptor behind.
func TestRegionsThatHaveGone(t *testing.T) {
	var h serverSide
	var files [2]int
	for i := range files {
		files[i], _ = rawRegion(t, rawBytes, 0)
		r := must(mapRegion(files[i], rawBytes, false))(t)
		h.regions = append(h.regions, r)
		in, out := givenRing{addRing: addRing{region: i, log2: 4}},
			givenRing{addRing: addRing{region: i, offset: 1024, log2: 4}}
		in.fd = must(unix.Eventfd(0, unix.EFD_CLOEXEC))(t)
		out.fd = must(unix.Eventfd(0, unix.EFD_CLOEXEC))(t)
		h.c2s, h.s2c = append(h.c2s, in), append(h.s2c, out)
	}
	all := append(slices.Clone(h.c2s), h.s2c...)
	require.NoError(t, unix.Ftruncate(files[1], 0))
	require.ErrorContains(t, withFaults(func() error { h.session(); return nil }), "has gone")
	h.close()
	for _, g := range all {
		require.ErrorIs(t, unix.Fstat(g.fd, new(unix.Stat_t)), unix.EBADF)
	}
}

// Memory of a client is there before a queue looks at it.
func TestRegionsAreThere(t *testing.T) {
	const octets = 4 << 20
	fd := must(unix.MemfdCreate("sparse", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING))(t)
	defer unix.Close(fd)
	require.NoError(t, unix.Ftruncate(fd, octets))
	must(unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK))(t)
	r := must(mapRegion(fd, octets, true))(t)
	defer unmapAll([]region{r})
	var st unix.Stat_t
	require.NoError(t, unix.Fstat(fd, &st))
	require.GreaterOrEqual(t, st.Blocks*512, int64(octets))
}

// A client whose eventfd takes no more, so that the goroutine that writes to it hangs, holds
// neither that up when it has gone nor its interface. One that fills it again and again is
// refused: no interface has more than one goroutine that hangs.
func TestFullEventfd(t *testing.T) {
	l := listen(t, ListenConfig{})
	server := bind(t, l, BindConfig{}, 64)
	defer server.closed(t)
	full := must(unix.Eventfd(0, unix.EFD_CLOEXEC))(t)
	defer unix.Close(full)
	fill(t, full)

	attach := func() (*rawClient, ring) {
		c := rawDial(t, l.cfg.Socket)
		memory, _ := c.attached(layout{bell: full})
		c.connect()
		return c, ringAt(memory, 1024, 4)
	}
	c, rx := attach()
	rx.store(0, newDesc(0, 0, 2048, 8192))
	rx.advance(1)
	server.send(t, 0, frame(newRand(t), 60))
	require.NoError(t, c.conn.Close())

	c, _ = attach()
	require.NoError(t, c.conn.Close())
	for ctx := within(t); ; yield() {
		l.lock.Lock()
		free := l.using[0] == nil
		l.lock.Unlock()
		if free {
			break
		}
		require.NoError(t, ctx.Err(), "the client has not gone")
	}
	l.lock.Lock() // as the next connection looks for an interface
	server.port.rung = &bells{ended: make(chan struct{})}
	l.lock.Unlock()
	again := rawDial(t, l.cfg.Socket)
	again.tells(goodInit().message(), -1)
	again.refused("An eventfd of the last connection is full")
}

// What is no frame costs a call of Rx a bounded walk; frames after it come in later ones.
func TestWalkIsBounded(t *testing.T) {
	for name, bad := range map[string]desc{"empty": newDesc(0, 0, 0, 0),
		"one long chain": newDesc(1, 0, 1, 0)} {
		t.Run(name, func(t *testing.T) {
			m := newMemoryPair(t, 11, 2048, false)
			const count = 2000
			for i := range uint16(count) {
				m.server.ring.store(i, bad)
			}
			m.server.ring.store(count-1, newDesc(0, 0, 0, 0))
			m.server.ring.store(count, newDesc(0, 0, 60, 8192))
			m.server.ring.advance(count + 1)
			var bufs [8]mem.Buf
			for was := uint16(0); ; was = m.server.ring.tail() {
				n := m.server.queues[0].Rx(bufs[:])
				require.LessOrEqual(t, m.server.ring.tail()-was, uint16(descsPerFrame*len(bufs)+2*piecesMax))
				if n > 0 {
					require.Equal(t, 1, n)
					require.EqualValues(t, count+1, m.server.ring.tail())
					m.server.pools[0].FreeN(bufs[:n])
					return
				}
				require.Greater(t, m.server.ring.tail(), was)
			}
		})
	}
}

// An index that cannot be ends the connection, of this client alone, with a reason.
func TestHostileIndices(t *testing.T) {
	t.Run("head of frames", func(t *testing.T) {
		h := newHostileClient(t)
		h.tx.advance(17)
		require.Empty(t, h.server.take(0))
		h.refusedLater()
	})
	t.Run("head of buffers", func(t *testing.T) {
		h := newHostileClient(t)
		h.rx.advance(60000)
		require.Zero(t, h.server.tx(t, frame(newRand(t), 60)))
		h.refusedLater()
	})
}

// refusedLater wants the connection to end, and another client to be served.
func (h *hostileClient) refusedLater() {
	t := h.t.(*testing.T)
	require.EqualValues(t, 1, h.server.queues[0].Drops().Index)
	require.Equal(t, 1, h.server.queues[0].Tx(make([]mem.Buf, 1))) // lost: no peer any more
	h.server.poll()
	require.NoError(t, h.server.port.AwaitLink(within(t), false))
	h.server.poll()
	h.refused("ring index out of range")
	require.ErrorContains(t, h.server.port.Err(), "ring index")
	client := dialSide(t, Config{Socket: h.l.cfg.Socket}, false, 256)
	joined(t, client, h.server)
	bothWays(t, newRand(t), client, h.server, 2)
	h.server.closed(t)
}

// A server's indices and lengths are checked by its clients, too.
func TestHostileServer(t *testing.T) {
	for _, k := range sample.Of(t, 1, kinds) {
		for name, f := range map[string]func(p pair){
			"tail of frames":  func(p pair) { p.rx.setTail(600) },
			"tail of buffers": func(p pair) { p.tx.setTail(60000) },
		} {
			t.Run(k.name+"/"+name, func(t *testing.T) {
				client, server, _ := newPair(t, pairConfig{zero: k.zero})
				r := newRand(t)
				client.send(t, 0, frame(r, 60))
				f(server.rings())
				require.Empty(t, client.take(0))
				client.tx(t, frame(r, 60))
				require.NotZero(t, client.queues[0].Drops().Index)
				server.poll()
				for ctx := within(t); client.queues[0].session != nil && client.queues[0].broken; {
					require.NoError(t, ctx.Err())
					client.poll()
					server.poll()
				}
				joined(t, client, server)
				bothWays(t, r, client, server, 2)
				bothClosed(t, client, server)
			})
		}
		for name, c := range map[string]struct {
			d     desc
			drops Drops
		}{
			"longer than its buffer": {newDesc(0, 0, 1<<31, 0), Drops{Descriptor: 1}},
			"longest":                {newDesc(0, 0, 1<<32-1, 0), Drops{Descriptor: 1}},
			"empty":                  {newDesc(0, 0, 0, 0), Drops{Descriptor: 1}},
			"short":                  {newDesc(0, 0, 13, 0), Drops{Length: 1}},
			"never ends":             {newDesc(1, 0, 60, 0), Drops{Descriptor: 1}},
		} {
			t.Run(k.name+"/"+name, func(t *testing.T) {
				client, server, _ := newPair(t, pairConfig{zero: k.zero})
				r := newRand(t)
				server.send(t, 0, frame(r, 60))
				p := server.rings()
				p.tx.store(0, c.d)
				require.Empty(t, client.take(0))
				require.Equal(t, c.drops, client.queues[0].Drops())
				require.EqualValues(t, 1, client.queues[0].Counters().RxErrors)
				bothWays(t, r, client, server, 2)
				bothClosed(t, client, server)
			})
		}
	}
}

// Memory of a client that goes away under the server ends the connection, not the process, and no
// Buf is lost.
func TestMemoryThatGoes(t *testing.T) {
	for _, sending := range []bool{false, true} {
		h := newHostile(t, ListenConfig{Unsealed: true}, layout{unsealed: true})
		h.server.poll()
		h.put(newDesc(0, 0, 60, 0), newDesc(0, 0, 60, 8192))
		h.post(newDesc(0, 0, 2048, 8192))
		require.NoError(t, unix.Ftruncate(h.fd, 4096)) // the rings stay
		if sending {
			require.Zero(t, h.server.tx(t, frame(newRand(t), 60)))
		} else {
			require.Empty(t, h.server.take(0))
		}
		require.Equal(t, Drops{Fault: 1}, h.server.queues[0].Drops())
		require.NoError(t, h.server.port.AwaitLink(within(t), false))
		h.server.poll()
		h.refused("memory of a region has gone")
		h.server.closed(t)
	}
	// Where it went before the rings were looked at, there is no connection.
	c := rawDial(t, listen(t, ListenConfig{Unsealed: true, Backlog: 1}).cfg.Socket)
	_, fd := c.attached(layout{unsealed: true})
	require.NoError(t, unix.Ftruncate(fd, 0))
	c.tells(interfaceMessage(msgConnect, "x"), -1)
	c.refused("Memory of a region has gone")
}

// A panic that is not the peer's memory's goes on.
func TestOtherPanicsPass(t *testing.T) {
	_, server, _ := newPair(t, pairConfig{})
	b := server.buf(t, 0, frame(newRand(t), 60))
	server.pools[0].Desc(b).Off = 1 << 20
	require.Panics(t, func() { server.queues[0].Tx([]mem.Buf{b}) })
	require.Zero(t, server.queues[0].Drops())
}

// memoryPair is both ends of a session in memory that the race detector sees, without sockets.
// The client's receive ring, and the server's transmit ring, is client.ring.
type memoryPair struct {
	client, server memorySide
}

type memorySide struct {
	*side
	session *session
	ring    *ring
}

func newMemoryPair(t testing.TB, log2 uint8, bufBytes int, zero bool) (m memoryPair) {
	t.Helper()
	size := 2*ringBytes(log2) + 2*bufBytes<<log2
	memory := make([]uint64, size/8+1)
	region := bytesOf(memory)
	clearRing(region, 0, log2)
	clearRing(region, uint32(ringBytes(log2)), log2)
	c2s, s2c := ringAt(region, 0, log2), ringAt(region, uint32(ringBytes(log2)), log2)
	end := func(rings pair, own *ownMemory) memorySide {
		p := must(newPort("test", [6]byte{}, 1500, 1))(t)
		s := newSession([][]byte{region}, []pair{rings}, own)
		s.bells, s.guarded = newBells([]int{-1}), true // no page of ours goes away
		p.current.Store(s)
		side := openSide(t, p, nil, 256)
		side.poll()
		return memorySide{side, s, &rings.rx}
	}
	m.client = end(pair{rx: s2c, tx: c2s},
		&ownMemory{bufFrom: 2 * ringBytes(log2), bufBytes: bufBytes})
	m.server = end(pair{rx: c2s, tx: s2c}, nil)
	return m
}

// Both ends on goroutines of their own, under the race detector if there is one: every frame
// arrives, whole and in order.
func TestConcurrent(t *testing.T) {
	const frames = 20000
	m := newMemoryPair(t, 5, 512, false)
	var both sync.WaitGroup
	run := func(s *side) {
		r := rand.New(rand.NewPCG(1, 1))
		in := make([]mem.Buf, 32)
		out := make([]mem.Buf, 1)
		f := make([]byte, 1500)
		sent, got := 0, 0
		for sent < frames || got < frames {
			before := sent + got
			if sent < frames {
				f := f[:20+r.IntN(1400)]
				binary.BigEndian.PutUint64(f, uint64(sent))
				for i := 8; i < len(f); i++ {
					f[i] = byte(sent + i)
				}
				out[0] = s.pools[0].Alloc()
				s.pools[0].Desc(out[0]).Len = uint32(len(f))
				copy(s.pools[0].Data(out[0]), f)
				sent += s.queues[0].Tx(out)
				s.pools[0].Free(out[0])
			}
			for _, b := range in[:s.queues[0].Rx(in)] {
				f := s.pools[0].Data(b)
				ok := binary.BigEndian.Uint64(f) == uint64(got)
				for i := 8; i < len(f); i++ {
					ok = ok && f[i] == byte(got+i)
				}
				if !ok {
					t.Errorf("frame %d is not what was sent", got)
				}
				got++
				s.pools[0].Free(b)
			}
			if sent+got == before {
				yield()
			}
		}
	}
	both.Go(func() { run(m.client.side) })
	both.Go(func() { run(m.server.side) })
	both.Wait()
	require.Zero(t, m.client.queues[0].Drops())
	require.Zero(t, m.server.queues[0].Drops())
}
