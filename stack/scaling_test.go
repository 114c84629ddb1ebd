package stack

import (
	"context"
	"encoding/binary"
	"fmt"
	"net/netip"
	"runtime"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/tcp"
)

// drain is a queue whose other end takes everything at once and costs nothing: it answers a SYN, an
// ARP request, and a burst of a connection's segments with one ACK. What it answers comes in on the
// queue that asked, as with RSS and a dial that hashes home.
type drain struct {
	pool   *mem.Pool
	n      pmd.Counters
	conns  []drained
	answer [][]byte // to be received
}

// drained is what it knows of a connection, by the segment that began it.
type drained struct {
	port  uint16
	ack   []byte // the frame of its ACK
	edge  uint32 // next octet it wants
	wants bool   // an ACK is due
}

func (q *drain) Counters() pmd.Counters { return q.n }

func (q *drain) Tx(bufs []mem.Buf) int {
	for _, b := range bufs {
		q.take(q.pool.Data(b))
	}
	q.n.TxFrames += uint64(len(bufs))
	for i := range q.conns {
		if c := &q.conns[i]; c.wants {
			c.wants = false
			binary.BigEndian.PutUint32(c.ack[42:], c.edge)
			q.answer = append(q.answer, c.ack)
		}
	}
	return len(bufs)
}

func (q *drain) take(f []byte) {
	switch {
	case f[12] == 8 && f[13] == 6: // ARP: its target answers
		r := append([]byte(nil), f[:42]...)
		copy(r[0:6], f[6:12])
		copy(r[6:12], drainMAC)
		r[21] = 2
		copy(r[22:28], drainMAC)
		copy(r[28:32], f[38:42])
		copy(r[32:42], f[22:32])
		q.answer = append(q.answer, r)
	case f[23] == 6 && f[47]&byte(tcp.SYN) != 0:
		r := append([]byte(nil), f...)
		copy(r[0:6], f[6:12])
		copy(r[6:12], f[0:6])
		copy(r[26:30], f[30:34])
		copy(r[30:34], f[26:30])
		copy(r[34:36], f[36:38])
		copy(r[36:38], f[34:36])
		seq := binary.BigEndian.Uint32(f[38:]) + 1
		binary.BigEndian.PutUint32(r[38:], 1000)
		binary.BigEndian.PutUint32(r[42:], seq)
		r[47] |= byte(tcp.ACK)
		binary.BigEndian.PutUint16(r[48:], 65535)
		r = noTimestamps(r)
		q.answer = append(q.answer, r)
		ack := append([]byte(nil), r[:54]...)
		ack[46], ack[47] = 5<<4, byte(tcp.ACK)
		binary.BigEndian.PutUint16(ack[16:], 40)
		binary.BigEndian.PutUint32(ack[38:], 1001)
		q.conns = append(q.conns, drained{port: binary.BigEndian.Uint16(f[34:]), ack: ack, edge: seq})
	case f[23] == 6:
		port := binary.BigEndian.Uint16(f[34:])
		for i := range q.conns {
			if c := &q.conns[i]; c.port == port {
				n := binary.BigEndian.Uint16(f[16:]) - 20 - uint16(f[46]>>4)*4
				if end := binary.BigEndian.Uint32(f[38:]) + uint32(n); n > 0 && int32(end-c.edge) > 0 {
					c.edge, c.wants = end, true
				}
			}
		}
	}
}

var drainMAC = []byte{2, 0, 0, 0, 0, 0xdd}

// noTimestamps overwrites a SYN's options that its answer must not have: timestamps, and SACK.
func noTimestamps(f []byte) []byte {
	for at := 54; at < len(f); {
		switch kind := f[at]; kind {
		case 0, 1:
			at++
		case 8, 4:
			n := int(f[at+1])
			for i := range n {
				f[at+i] = 1
			}
			at += n
		default:
			at += int(f[at+1])
		}
	}
	return f
}

func (q *drain) Rx(bufs []mem.Buf) (n int) {
	n = q.pool.AllocN(bufs[:min(len(bufs), len(q.answer))])
	for i, b := range bufs[:n] {
		d := q.pool.Desc(b)
		d.Len, d.Flags = uint32(len(q.answer[i])), mem.RxChecksumGood
		copy(q.pool.Data(b), q.answer[i])
	}
	q.answer = q.answer[:copy(q.answer, q.answer[n:])]
	q.n.RxFrames += uint64(n)
	return n
}

// pourer sends octets of a region without end: one copy of each, as a sender of registered memory
// makes it.
type pourer struct {
	mover
	region []byte
	acked  uint64
}

func (u *pourer) Pull(dst [][]byte) Pulled {
	for i := range dst {
		dst[i] = dst[i][:copy(dst[i], u.region)]
	}
	return Pulled{N: len(dst), More: true}
}
func (u *pourer) Acked(edge uint64) { u.acked = edge }

// goodputOver is how many octets a second n Pollers of one Group, each pinned to a core of its own,
// get acknowledged; and how many it were if each had had its core all the time, which on a machine
// with other work it has not.
func goodputOver(t testing.TB, n int, ns int64) (goodput, undisturbed float64) {
	g, err := NewGroup(n)
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var run sync.WaitGroup
	var pourers []*pourer
	var pollers []*Poller
	cpus := allowedCPUs(t)
	for i := range n {
		pool := newPool(t, 8192)
		q := &drain{pool: pool}
		p, err := New(Config{
			Name: fmt.Sprint("queue", i), Queue: q, Pool: pool,
			Caps: pmd.Caps{MTU: 1500, Queues: n, RxChecksum: true, TxChecksum: true},
			MAC:  [6]byte{2, 0, 0, 0, 0, 1}, Addr: netip.MustParsePrefix("10.0.0.1/24"),
			Core: cpus[i%len(cpus)], Idle: IdleSpin, NoDAD: true,
			NoAnnounce: true, ConnsMax: 16, TCP: tcp.Config{SentMax: 1024}, Group: g, Member: i,
		})
		require.NoError(t, err)
		pollers = append(pollers, p)
		for range 4 {
			pourers = append(pourers, &pourer{mover: mover{sending: true}, region: make([]byte, 1<<16)})
		}
		mine := pourers[4*i:]
		require.NoError(t, p.Submit(func() {
			for _, u := range mine {
				if _, err := (introducer{p}).Dial(netip.MustParseAddrPort("10.0.0.2:7"), u); err != nil {
					panic(err)
				}
			}
		}))
	}
	for _, p := range pollers {
		run.Go(func() { _ = p.Run(ctx) })
	}
	type state struct {
		acked   uint64
		at, cpu int64
	}
	look := func() []state { // each as its Poller has it
		states := make([]state, n)
		var asked sync.WaitGroup
		for i, p := range pollers {
			asked.Add(1)
			require.NoError(t, p.Submit(func() {
				defer asked.Done()
				s := &states[i]
				for _, u := range pourers[4*i : 4*i+4] {
					s.acked += u.acked
				}
				var ts unix.Timespec
				_ = unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &ts)
				s.at, s.cpu = systemClock(), ts.Nano()
			}))
		}
		asked.Wait()
		return states
	}
	pass := func(ns int64) {
		ts := unix.NsecToTimespec(ns)
		_ = unix.Nanosleep(&ts, nil)
	}
	pass(ns / 4) // past slow start
	before := look()
	pass(ns)
	for i, s := range look() {
		octets := float64(s.acked - before[i].acked)
		goodput += octets * float64(second) / float64(s.at-before[i].at)
		undisturbed += octets * float64(second) / float64(s.cpu-before[i].cpu)
	}
	cancel()
	run.Wait()
	return goodput, undisturbed
}

func allowedCPUs(t testing.TB) (cpus []int) {
	t.Helper()
	var set unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &set))
	for i := range cpuMax {
		if set.IsSet(i) {
			cpus = append(cpus, i)
		}
	}
	return cpus
}

// Goodput over one queue and over as many as there are CPUs, into a device that takes everything.
func BenchmarkQueues(b *testing.B) {
	for n := 1; n <= runtime.NumCPU(); n *= 2 {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			var goodput, undisturbed float64
			for range b.N {
				g, u := goodputOver(b, n, 500*ms)
				goodput, undisturbed = goodput+g, undisturbed+u
			}
			b.ReportMetric(goodput*8/1e9/float64(b.N), "Gbit/s")
			b.ReportMetric(undisturbed*8/1e9/float64(b.N), "Gbit/s-undisturbed")
		})
	}
}

// Two queues carry connections at once, each on its own Poller, with nothing handed over.
func TestQueuesIntoADrain(t *testing.T) {
	for n := 1; n <= 2; n++ {
		goodput, _ := goodputOver(t, n, 50*ms)
		require.Positive(t, goodput)
	}
}
