package rnic

import (
	"bytes"
	"math/rand/v2"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/internal/skip"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rdmap"
)

// However the octets of a stream are cut on their way, DDP sees the segments that were sent, each
// with its length, and the ULP the messages: Sends of every size with their ends where they were,
// Writes to the octet.
//
// req: DDP-5-4, DDP-5-8, 5041-3-1
func TestBoundariesSurviveResegmentation(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	const messages, room = 200, 300
	s, p := r.served(qpOpts(QPOptions{RecvDepth: messages}))
	var stream, region []byte
	var bodies [][]byte
	for i := range messages {
		s.postRecv(s.recvAt(uint64(i), room*i, room))
		body := randomBytes(rng.Uint64(), rng.IntN(room))
		cut := rng.IntN(len(body) + 1)
		first, rest := sendOf(uint32(i+1)), sendOf(uint32(i+1))
		first.Last, rest.MO = false, uint32(cut)
		between := writeFPDU(s.region.STag(), uint64(len(region)), body)
		stream = append(stream, p.frame(fpdu{first, body[:cut]}, between, fpdu{rest, body[cut:]})...)
		bodies, region = append(bodies, body), append(region, body...)
	}
	for len(stream) > 0 {
		n := min(len(stream), 1+rng.IntN(1400)>>rng.IntN(11))
		p.write(stream[:n])
		stream = stream[n:]
	}
	for i, c := range s.await(messages) {
		require.Equal(t, Completion{ID: uint64(i), QP: s.qp.Number(), Op: OpRecv,
			Len: uint32(len(bodies[i]))}, c)
		require.True(t, bytes.Equal(bodies[i], s.inbox.Bytes()[room*i:room*i+len(bodies[i])]),
			"message %d", i)
	}
	require.True(t, bytes.Equal(region, s.region.Bytes()[:len(region)]))
	require.Equal(t, uint64(messages), r.stats(s.qp).WritesRecvd)
}

// A message is complete at its source when TCP has all of it and will see to its transfer, not
// earlier, and be it that nothing of it has arrived.
//
// req: DDP-7.4-1, 5040-5.5-8
func TestCompleteOnceTCPHasIt(t *testing.T) {
	r := newRig(t, turned, rigConfig{faults: true})
	const n = 1 << 20 // more than TCP takes before anything is acknowledged
	s, c := r.connectEnds(r.newEndOf(r.server, opts{}, n), r.newEndOf(r.client, opts{}, n))
	r.exchange(s, c)
	clear(s.region.Bytes())
	drop := func(rate float64) {
		r.hosts[0].faults(fault.Faults{Drop: rate}, fault.Faults{})
	}
	drop(1)
	c.post(c.write(s, 1, 0, 1000))
	c.post(c.write(s, 2, 0, n))
	require.Equal(t, uint64(1), c.await(1)[0].ID)
	require.Equal(t, make([]byte, 1000), s.region.Bytes()[:1000], "complete, and not there")
	r.pass(time.Second)
	c.expectNoCompletion() // complete, and TCP does not have all of it
	drop(0)
	require.Equal(t, uint64(2), c.await(1)[0].ID)
	r.until("the octets", func() bool { return bytes.Equal(c.source.Bytes(), s.region.Bytes()) })
}

// Writes and Sends leave in the order in which they were posted, one message each, a Write's
// segments all for its one buffer.
//
// req: DDP-7.3-1, DDP-7.3-2, 5040-5.1-3, 5040-5.1-4, 5040-5.5-7, 5040-3.1-4
func TestOrderOnTheWire(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	const messages = 60
	s, p := r.served(qpOpts(QPOptions{SendDepth: messages}))
	for i := range messages {
		s.post(WorkRequest{Op: []Opcode{OpWrite, OpSend, OpWrite}[i%3], Local: s.source.Slice(i, 150*i),
			RemoteSTag: mem.STag(1000 + i), RemoteOffset: uint64(i) << 32})
	}
	p.open()
	sends := uint32(0)
	for i := range messages {
		want := writeTo(mem.STag(1000+i), uint64(i)<<32)
		if i%3 == 1 {
			sends++
			want = sendOf(sends)
		}
		var got []byte
		for want.Last = false; !want.Last; {
			f := p.nextFPDU()
			want.Last = f.Last
			require.Equal(t, want, f.Header, "message %d", i)
			got = append(got, f.payload...)
			if f.Tagged {
				want.TO += uint64(len(f.payload))
			} else {
				want.MO += uint32(len(f.payload))
			}
		}
		require.True(t, bytes.Equal(s.source.Bytes()[i:i+150*i], got), "message %d", i)
	}
}

// vast is a lot of address space; all of its parts of 65 MiB are the same memory. Registering it
// makes a million pages present, which takes the kernel seconds, and many times that where others
// want the cores too. That it goes through them once more for the next registration takes a third
// of a second.
func vast(t *testing.T, n int) []byte {
	t.Helper()
	const stretch = 65 << 20
	fd := must(unix.MemfdCreate("vast", unix.MFD_CLOEXEC))
	defer unix.Close(fd)
	require.NoError(t, unix.Ftruncate(fd, stretch))
	b, err := unix.Mmap(-1, 0, n, unix.PROT_NONE, unix.MAP_ANON|unix.MAP_PRIVATE|unix.MAP_NORESERVE)
	if err != nil {
		skip.Missing(t, "%d octets of address space: %v", n, err)
	}
	t.Cleanup(func() { require.NoError(t, unix.Munmap(b)) })
	for at := 0; at < n; at += stretch {
		must(unix.MmapPtr(fd, 0, unsafe.Pointer(&b[at]), uintptr(min(stretch, n-at)),
			unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_FIXED))
	}
	return b
}

// A message has up to 2^32-1 octets, and is delivered with that length; it may lie anywhere,
// beyond 4 GiB too. A longer one cannot be asked for. (The peer leaves the middle out, which DDP
// need not notice.)
//
// req: DDP-3.2-6, DDP-7.2-3, DDP-7.2-14, 5040-1.1-1
func TestLongestMessages(t *testing.T) {
	const longest, beyond = 1<<32 - 1, 1<<32 + 1<<20
	b := vast(t, beyond)
	r := newRig(t, turned, rigConfig{})
	clear(b[:16])
	clear(b[longest-16:])
	s := r.newEnd(r.server, opts{})
	region := must(s.pd.Register(b, RemoteWrite|LocalWrite))
	r.renew() // the kernel went through a million pages, which is no peer's doing
	require.Panics(t, func() { region.Slice(0, longest+1) })
	s.postRecv(WorkRequest{ID: 1, Local: region.Slice(5, longest)})
	p, _ := r.peerConnects(s, false)
	first, last := sendOf(1), sendOf(1)
	first.Last, last.MO = false, longest-4
	p.inject(fpdu{first, []byte("begins")})
	p.inject(fpdu{last, []byte("ends")})
	p.inject(writeFPDU(region.STag(), beyond-6, "beyond"))
	s.expectCompletions(Completion{ID: 1, Op: OpRecv, Len: longest})
	require.Equal(t, "\x00begins\x00", string(b[4:12]))
	require.Equal(t, "\x00ends\x00", string(b[longest:longest+6]))
	r.until("the Write", func() bool { return r.stats(s.qp).WritesRecvd == 1 })
	require.Equal(t, "\x00beyond", string(b[beyond-7:]))

	s.postRecv(WorkRequest{ID: 2, Local: region.Slice(0, longest)})
	over := sendOf(2)
	over.MO = longest - 4
	p.inject(fpdu{over, []byte("ends?")})
	p.expectTerminateFor(rdmap.Cause(0x1205)) // MO plus length is 2^32
	p.leave(s)
}

// DDP does not authenticate: the ULP sees which address asks, and with what private data, before
// anything that the peer says is taken for DDP, and may refuse.
//
// req: DDP-10.3-1, DDP-8.1-1
func TestULPDecidesBeforeDDPBegins(t *testing.T) {
	r := newRig(t, turned, rigConfig{})
	s := r.newEnd(r.server, opts{})
	p := r.peerDials()
	p.start(mpa.Mode{CRC: true})
	p.write(append(request(mpa.Frame{Rev: 1, CRC: true, PrivateData: []byte("who")}),
		p.frame(writeFPDU(s.region.STag(), 0, "early"))...))
	req := r.request()
	require.Equal(t, "who", string(req.PrivateData()))
	require.Equal(t, r.self(), req.Remote().Addr())
	require.NoError(t, req.Reject(r.ctx, nil))
	require.True(t, p.expectFrame(mpa.Reply).Reject)
	p.closeSend()
	r.until("the end", func() bool { return len(r.server.host.Live()) == 0 })
	require.Equal(t, make([]byte, 5), s.region.Bytes()[:5])
	require.Equal(t, Idle, s.qp.State())
}
