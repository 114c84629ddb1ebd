package bench

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/bench/floor"
	"github.com/rnicd/rnicd/bench/yard"
	"github.com/rnicd/rnicd/internal/fault"
	"github.com/rnicd/rnicd/internal/testhost"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/wire"
	"github.com/rnicd/rnicd/rnic"
)

// cable is how two hosts of a yardstick are joined.
type cable struct {
	mtu      int
	zeroCopy bool
	bare     bool          // no offload
	faults   *fault.Faults // of what each host receives
	between  func() int    // turned with the hosts; nil: nothing stands between them
	manual   bool          // calls of package rnic turn both hosts, and nothing else does
	// octets of memory at each end that Writes go through, 0: those of one message
	span  int
	conns int // a host has at most; 0: a few
}

// newCable is two hosts that a goroutine turns, until own.
func newCable(t testing.TB, c cable) *together {
	t.Helper()
	link := newLink(t, wire.Config{MTU: c.mtu, ChecksumOffload: c.faults == nil && !c.bare,
		ZeroCopy: c.zeroCopy})
	return onPorts(t, c, [2]pmd.Port{link.Port(0), link.Port(1)}, cablePools(t, c))
}

func cablePools(t testing.TB, c cable) (pools [2]*mem.Pool) {
	bufs := testhost.PoolConfig(4096, c.mtu)
	arena := newArena(t, int64(2*bufs.Bytes())+4096)
	var err error
	if c.zeroCopy {
		pools, err = mem.NewPair(arena, bufs)
		require.NoError(t, err)
		return pools
	}
	for i := range pools {
		pools[i], err = mem.NewPool(arena, bufs)
		require.NoError(t, err)
	}
	return pools
}

// onPorts makes the hosts of two ports.
func onPorts(t testing.TB, c cable, ports [2]pmd.Port, pools [2]*mem.Pool) *together {
	g := &together{span: c.span, between: c.between}
	cfg := hostConfig{mtu: c.mtu, clock: g.clock.now, conns: c.conns,
		wrap: func(q pmd.Queue, pool *mem.Pool) pmd.Queue {
			if c.faults == nil {
				return q
			}
			faulty, err := fault.Wrap(q, pool, fault.Spec{Seed: 1, HeldMax: 4096, Rx: *c.faults},
				g.clock.now)
			require.NoError(t, err)
			return faulty
		}}
	if c.manual {
		cfg.manual = func() { g.turn() }
	}
	g.server = hostOn(t, ports[0], "10.9.0.1/24", pools[0], cfg)
	g.client = hostOn(t, ports[1], "10.9.0.2/24", pools[1], cfg)
	if !c.manual {
		t.Cleanup(g.own)
		g.lend()
	}
	return g
}

// park ends the turning of g's hosts until lend. Its connections end with the test, which somebody
// must turn.
func park(t testing.TB, g *together) {
	t.Cleanup(g.lend)
	g.own()
}

// writer writes one message over and over again, outstanding of them at once; or one after the
// other all messages that its region has. It runs on its Poller.
type writer struct {
	*end
	to     *rnic.MemoryRegion
	slice  *yard.Slice
	busy   time.Duration // since the slice was told; of writers whose time is what they were busy
	counts bool          // it is
	posted uint64
	done   uint64
	stop   bool
	failed error
	cs     [outstanding]rnic.Completion
}

func (w *writer) step() int {
	n := w.cq.Poll(w.cs[:])
	for i := range w.cs[:n] {
		if w.cs[i].Status != rnic.Success {
			w.failed = fmt.Errorf("%v", w.cs[i])
		}
	}
	if n > 0 {
		w.done += uint64(n)
		switch {
		case w.counts:
			w.slice.Spent(float64(n*message), w.busy)
			w.busy = 0
		default:
			w.slice.Did(float64(n * message))
		}
	}
	for !w.stop && w.posted-w.done < outstanding && w.failed == nil {
		at := int(w.posted%w.messages()) * message
		_, err := w.qp.PostSend(rnic.WorkRequest{
			ID: w.posted, Op: rnic.OpWrite, Local: w.region.Slice(at, message), Signaled: true,
			RemoteSTag: w.to.STag(), RemoteOffset: w.to.Base() + uint64(at),
		})
		if err != nil {
			w.failed = err
			break
		}
		w.posted++
		n++
	}
	return n
}

// messages are those of the region.
func (w *writer) messages() uint64 { return uint64(w.region.Len() / message) }

// settle writes every message of the region with octets that were never sent, and stops.
func (w *writer) settle(t testing.TB, turn func() int) error {
	late := lateness(t)
	drained := func() error {
		for w.done < w.posted && w.failed == nil {
			if turn(); late.Load() {
				return errors.New("not all Writes complete")
			}
		}
		return w.failed
	}
	w.slice = &yard.Slice{}
	w.stop = true
	if err := drained(); err != nil {
		return err
	}
	newNoise(t).fill(w.region.Bytes())
	if w.done == 0 {
		return errors.New("nothing was written")
	}
	w.stop = false
	for to := w.posted + w.messages(); w.posted < to && w.failed == nil; {
		if w.step() == 0 {
			turn()
		}
		if late.Load() {
			return errors.New("not all messages are posted")
		}
	}
	w.stop = true
	return drained()
}

// written waits until the receiver has counted every message; a Write completes before that, when
// its octets are in packet buffers.
func (w *writer) written(t testing.TB, s *end) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for {
		st, err := s.qp.Stats(ctx)
		switch {
		case err != nil:
			return fmt.Errorf("%d of %d Writes have arrived: %w", st.WritesRecvd, w.done, err)
		case st.WritesRecvd < w.done:
			runtime.Gosched()
			continue
		case st.WritesRecvd != w.done || st.Placed.Direct+st.Placed.Reassembled != w.done*message:
			return fmt.Errorf("of %d Writes %d have arrived, of %d octets %d", w.done, st.WritesRecvd,
				w.done*message, st.Placed.Direct+st.Placed.Reassembled)
		case !bytes.Equal(w.region.Bytes(), s.region.Bytes()):
			return errors.New("what arrived is not what was sent")
		}
		return nil
	}
}

// check is a Contender's Check: it settles, and compares the memory of both ends.
func (w *writer) check(t testing.TB, g *together, s *end) error {
	g.clock.resume()
	err := w.settle(t, g.turn)
	g.client.app = nil
	g.lend()
	defer g.own() // other Contenders still have slices
	if err != nil {
		return err
	}
	return w.written(t, s)
}

// newWriter connects the hosts of g and parks them.
func newWriter(t testing.TB, g *together, markers bool) (*writer, *end) {
	opt := opts{rnic.QPOptions{SendDepth: 64}, rnic.ConnParam{NoMarkers: !markers}}
	s, c := connect(t, g.server, g.client, max(g.span, message), opt)
	newNoise(t).fill(c.region.Bytes())
	clear(s.region.Bytes()) // no page of it is new
	w := &writer{end: c, to: s.region}
	park(t, g)
	return w, s
}

// writing is bulk Write between two cores.
func writing(t testing.TB, name string, c cable, markers bool) *yard.Contender {
	return writingOn(t, name, newCable(t, c), writeWay{markers: markers})
}

// writeWay is how two hosts write.
type writeWay struct {
	markers bool
	between func() int // what is between them, or nil, on the receiver's core
	oneCore bool       // all is turned by one core
}

func writingOn(t testing.TB, name string, g *together, way writeWay) *yard.Contender {
	w, s := newWriter(t, g, way.markers)
	turn := func() int { return g.client.poller.Turn() }
	if way.oneCore {
		turn = g.turn
	}
	k := &yard.Contender{
		Name: name, Unit: "octets/s", Resume: g.clock.resume, Pause: g.clock.pause,
		Left: func(slice *yard.Slice) {
			w.slice, w.stop, g.client.app = slice, false, w.step // again, after a Check
			for !slice.Over() {
				turn()
			}
		},
		Check: func() error { return w.check(t, g, s) },
	}
	if !way.oneCore {
		k.Right = func(slice *yard.Slice) {
			for !slice.Over() {
				if way.between != nil {
					way.between()
				}
				g.server.poller.Turn()
			}
		}
	}
	return k
}

// writingBusy is bulk Write with both ends on one core. Only the time counts in which a
// Turn had something to do: the CPU that an octet costs, on a path with a delay.
func writingBusy(t testing.TB, name string, c cable) *yard.Contender {
	g := newCable(t, c)
	w, s := newWriter(t, g, false)
	w.counts = true
	return &yard.Contender{
		Name: name, Unit: "octets/s of a busy core", Resume: g.clock.resume, Pause: g.clock.pause,
		Left: func(slice *yard.Slice) {
			w.slice, w.busy, g.client.app = slice, 0, w.step
			at := time.Now()
			for !slice.Over() {
				work := g.turn()
				now := time.Now()
				if work > 0 {
					w.busy += now.Sub(at)
				}
				at = now
			}
		},
		Check: func() error { return w.check(t, g, s) },
	}
}

// payloads of a full segment's FPDU: EMSS, length field, DDP and RDMAP header and CRC.
var payloads = map[int]int{1500: 1500 - 20 - 32 - 2 - 14 - 4, 9000: 9000 - 20 - 32 - 2 - 14 - 4}

// floorNoise is by how much two that do the same differ here.
const floorNoise = 0.05

// underFloor says that something was faster than the floor it was held against, by its best and by
// its median. Where others had the cores in most slices that says nothing.
func underFloor(ratio yard.Value) bool {
	return min(ratio.Best, ratio.Median) > 1+floorNoise && ratio.Lost <= ratio.Slices
}

// writeParts is bulk Write of 1 MiB beside the floor with as many copies.
func writeParts(y *yardstick) {
	for _, mtu := range []int{1500, 9000} {
		var all []*yard.Contender
		for _, copies := range []int{2, 4} {
			cfg := floor.Config{Payload: payloads[mtu], Copies: copies, Slots: 64, Burst: 16, Own: 16,
				Ways: floor.Ways{Send: true}}
			if !y.dry {
				var err error
				cfg, err = floor.Best(y.crew, payloads[mtu], copies, 10, 5*time.Millisecond)
				require.NoError(y, err)
				y.Logf("MTU %d, %d copies: the fastest floor is %+v", mtu, copies, cfg)
			}
			f := must(floor.New(cfg))(y)
			all = append(all, f.Contender(fmt.Sprintf("floor, %d copies, MTU %d", copies, mtu)),
				writing(y, fmt.Sprintf("Write, %d copies, MTU %d", copies, mtu),
					cable{mtu: mtu, zeroCopy: copies == 2}, false))
		}
		s := y.take(all...)
		for i, copies := range []int{2, 4} {
			goal := map[int]float64{1500: 0.7, 9000: 0.85}[mtu]
			name := fmt.Sprintf("Write of 1 MiB to the floor, %d copies, MTU %d", copies, mtu)
			ratio := yard.Ratio(s[2*i+1], s[2*i])
			y.row(name, "x", atLeast(goal), ratio, "")
			if !y.dry && underFloor(ratio) {
				y.Errorf("%s: %.2f at the best decile, %.2f by the median: what the floor does can be done "+
					"better, so it is none", name, ratio.Best, ratio.Median)
			}
		}
		for _, x := range s {
			y.row(x.Name, "Gbit/s", yard.Goal{}, yard.Rate(x, 8e-9), "")
		}
		runtime.GC()
	}
}

// markersPart is what markers cost.
func markersPart(y *yardstick) {
	for _, mtu := range []int{1500, 9000} {
		s := y.take(writing(y, "Write", cable{mtu: mtu}, false),
			writing(y, "Write, markers", cable{mtu: mtu}, true))
		y.row(fmt.Sprintf("Write with markers to without, MTU %d", mtu), "x", atLeast(0.85),
			yard.Ratio(s[1], s[0]), "")
	}
}

// lossPart is what an octet costs where one frame of 100 is lost, each way, at a RTT of 100 us.
func lossPart(y *yardstick) {
	clean := fault.Faults{Delay: int64(50 * time.Microsecond)}
	lossy := clean
	lossy.Drop = 0.01
	s := y.take(writingBusy(y, "Write, RTT 100 us", cable{mtu: 1500, faults: &clean}),
		writingBusy(y, "Write, RTT 100 us, 1 % lost", cable{mtu: 1500, faults: &lossy}))
	y.row("CPU an octet with 1 % loss to without, RTT 100 us", "x", atMost(1.3),
		yard.Ratio(s[0], s[1]), "time in which a Turn had work, both ends")
}
