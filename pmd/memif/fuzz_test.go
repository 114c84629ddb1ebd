package memif

import (
	"testing"

	"golang.org/x/sys/unix"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/mem"
)

// Whatever messages a client sends, with whatever descriptors, the server's part of the handshake
// ends in a refusal or in a session that can be used.
func FuzzHandshake(f *testing.F) {
	add := func(script ...[]byte) {
		var all []byte
		for _, m := range script {
			all = append(all, m...)
		}
		f.Add(all)
	}
	step := func(kind byte, m *message) []byte { return append([]byte{kind}, m[:]...) }
	hi := step(0, goodInit().message())
	region := step(1, (&addRegion{0, rawBytes}).message())
	in, out := step(2, (&addRing{c2s: true, log2: 4}).message()),
		step(2, (&addRing{offset: 1024, log2: 4}).message())
	connect := step(0, interfaceMessage(msgConnect, "x"))
	add(hi, region, in, out, connect)
	add(hi, region, region, in, out, connect, hi)
	add(hi, step(3, (&addRegion{0, rawBytes}).message()))
	add(connect)
	f.Fuzz(func(t *testing.T, script []byte) {
		h := &serverSide{limits: limits{queues: 2, log2: ringLog2Max, regionBytes: 1 << 20}}
		h.admit = func(p Peer) (string, error) { return "memif", nil }
		defer func() { closeAll(h.unwanted) }()
		defer h.close()
		var m message
		for len(script) > 0 && !h.complete {
			fd := -1
			switch script[0] % 4 {
			case 1:
				shared, _ := rawRegion(t, rawBytes, unix.F_SEAL_SHRINK)
				fd = dup(t, shared)
			case 2:
				fd = dup(t, rawEventfd(t))
			case 3:
				fd = dup(t, 0)
			}
			clear(m[:])
			copy(m[:], script[1:])
			script = script[min(len(script), 1+msgLen):]
			if _, err := guarded(h, &m, fd); err != nil {
				return
			}
		}
		if !h.complete {
			return
		}
		s, regions := h.session()
		p := must(newPort("fuzz", [6]byte{}, 1500, len(s.rings)))(t)
		p.current.Store(s)
		side := openSide(t, p, nil, 64)
		side.poll()
		require.NoError(t, p.Close())
		s.bells.stop()
		unmapAll(regions)
	})
}

func dup(t testing.TB, fd int) int {
	t.Helper()
	return must(unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0))(t)
}

// Whatever the other end writes into rings and descriptors, while frames are sent and received,
// nothing outside is touched and no Buf is lost: either role, with and without copies.
func FuzzRings(f *testing.F) {
	f.Add(uint8(0), []byte{})
	f.Add(uint8(1), []byte{6, 0, 3, 0, 128, 0, 1, 0, 133, 0, 255, 255})
	f.Add(uint8(2), []byte{64, 0, 9, 0, 64, 2, 3, 0})
	f.Fuzz(func(t *testing.T, kind uint8, script []byte) {
		const log2 = 4
		size := 2*ringBytes(log2) + 2*2048<<log2
		arena := memfdArena(t, size+bufsOfFuzz*stride+1<<16)
		region := must(arena.Carve(size, 4096))(t)
		clearRing(region, 0, log2)
		clearRing(region, uint32(ringBytes(log2)), log2)
		up, down := ringAt(region, 0, log2), ringAt(region, uint32(ringBytes(log2)), log2)
		s := newSession([][]byte{region}, []pair{{rx: up, tx: down}}, nil)
		switch kind % 3 {
		case 1:
			s = newSession([][]byte{region}, []pair{{rx: down, tx: up}},
				&ownMemory{bufFrom: 2 * ringBytes(log2), bufBytes: 2048})
		case 2:
			s = newSession([][]byte{region, arena.Bytes()}, []pair{{rx: down, tx: up}},
				&ownMemory{arena: arena})
		}
		s.bells, s.guarded = newBells([]int{-1}), true
		p := must(newPort("fuzz", [6]byte{}, 1500, 1))(t)
		if kind%3 == 2 {
			p.arena = arena
		}
		p.current.Store(s)
		side := openSide(t, p, arena, bufsOfFuzz)
		q, pool := side.queues[0], side.pools[0]
		out, in := make([]mem.Buf, 4), make([]mem.Buf, 8)
		for len(script) >= 4 {
			// Four octets: where to write, and what.
			at := int(native.Uint16(script)) % (2 * ringBytes(log2))
			region[at], region[(at+1)%len(region)] = script[2], script[3]
			script = script[4:]
			n := pool.AllocN(out[:1+at%4])
			for i, b := range out[:n] {
				pool.Desc(b).Len = uint32(60 + 400*i)
			}
			q.Tx(out[:n])
			pool.FreeN(out[:n])
			pool.FreeN(in[:q.Rx(in)])
			if q.broken {
				break
			}
		}
		require.NoError(t, p.Close())
		require.Equal(t, pool.Size(), pool.Available())
	})
}

const bufsOfFuzz = 64
