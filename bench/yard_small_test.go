package bench

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"

	"github.com/rnicd/rnicd/bench/yard"
	"github.com/rnicd/rnicd/rnic"
	"github.com/rnicd/rnicd/stack"
)

const usPerNs = 1e-3

// latencyPart is Write of 8 octets, one way.
func latencyPart(y *yardstick) {
	g := newCable(y, cable{mtu: 1500, zeroCopy: false})
	ask, answer := pingPair(y, g.server, g.client, false, 8<<20)
	park(y, g)
	y.pings("Write of 8 octets there and back", g, ask, answer,
		func() { ask.resumed = true }, func() {}, g.client.poller.Turn, g.server.poller.Turn)
	halves := make([]float64, len(ask.samples))
	for i, ns := range ask.samples {
		halves[i] = float64(ns) / 2 * usPerNs
	}
	v := yard.Samples(halves)
	y.row("Write of 8 octets, one way, median", "us", atMost(0.8), v,
		"best decile, median and quartiles of all exchanges")
	tail := yard.Quantile(halves, 0.999)
	y.row("Write of 8 octets, one way, p99.9", "us", atMost(10), exactly(tail, v.Slices),
		"of all exchanges")
}

// pings has two ends ping, each on a core of its own; there asks and answers are called at the
// beginning of a slice.
func (y *yardstick) pings(name string, g *together, ask, answer *pinger, asks, answers func(),
	client, server func() int) {
	y.take(&yard.Contender{
		Name: name, Unit: "pairs/s", Resume: g.clock.resume, Pause: g.clock.pause,
		Left: func(s *yard.Slice) {
			g.client.app = ask.step
			asks()
			for seen := ask.seen; !s.Over(); {
				client()
				if ask.seen > seen+64 {
					s.Did(float64(ask.seen - seen))
					seen = ask.seen
				}
			}
		},
		Right: func(s *yard.Slice) {
			g.server.app = answer.step
			answers()
			for !s.Over() {
				server()
			}
		},
		Check: func() error {
			g.client.app, g.server.app = nil, nil
			return errors.Join(ask.failed, answer.failed)
		},
	})
}

// sendsPart is Sends of 64 octets a core: two cores, one for each end.
func sendsPart(y *yardstick) {
	var all []*yard.Contender
	for _, way := range []smallWay{{rnic.PackNow, 32, true}, {rnic.PackFull, 32, true}} {
		all = append(all, sending(y, way))
	}
	s := y.take(all...)
	best := s[0]
	for _, x := range s {
		if x.Best() > best.Best() {
			best = x
		}
		y.row(x.Name+", a core of two", "M/s", yard.Goal{}, yard.Rate(x, 0.5e-6), "")
	}
	y.row("Sends of 64 octets a core", "M/s", atLeast(6), yard.Rate(best, 0.5e-6),
		"the faster of these")
}

func sending(y *yardstick, way smallWay) *yard.Contender {
	const tell = 1024
	g := newCable(y, cable{mtu: 1500})
	send, recv := smallPair(y, g.server, g.client, way, 1<<62)
	park(y, g)
	return &yard.Contender{
		Name: "Send of 64 octets, " + way.String(), Unit: "Sends/s", Resume: g.clock.resume,
		Pause: g.clock.pause,
		Left: func(s *yard.Slice) {
			g.client.app = send.step
			for !s.Over() {
				g.client.poller.Turn()
			}
		},
		Right: func(s *yard.Slice) {
			g.server.app = recv.step
			for from := recv.got; !s.Over(); {
				g.server.poller.Turn()
				if recv.got-from >= tell {
					s.Did(float64(recv.got - from))
					from = recv.got
				}
			}
		},
		Check: func() error {
			g.clock.resume()
			g.client.app, g.server.app = send.step, recv.step
			// on a busy machine the slices may have been too short
			for late := lateness(y); recv.got == 0 && !late.Load(); {
				g.turn()
			}
			g.client.app, g.server.app = nil, nil
			if recv.wrong > 0 || recv.got == 0 {
				return fmt.Errorf("%d of %d Sends are not what was sent", recv.wrong, recv.got)
			}
			return errors.Join(send.failed, recv.failed)
		},
	}
}

// connectionsPart is what a connection takes, and what a segment costs among many.
func connectionsPart(y *yardstick) {
	many := 100_000
	goal, size := yard.Goal{}, yard.Goal{}
	switch {
	case y.dry:
		many = 1000
	case y.full:
		many, goal, size = 1_000_000, atMost(1.5), atMost(1024)
	}
	octets, took := idleOctets(y, many)
	note := ""
	if !y.full {
		note = "the goal is about 1,000,000: make bench"
	}
	y.row(fmt.Sprintf("memory of an end, %d connections", many), "octets", size,
		exactly(octets, 1), note)
	rate := float64(many) / took.Seconds()
	y.row(fmt.Sprintf("connections set up a second of processor time, %d", many), "1/s", yard.Goal{},
		exactly(rate, 1), "TCP, both ends on one core, the collector's time too")
	runtime.GC()
	s := y.take(echoing(y, 32), echoing(y, many))
	y.row(fmt.Sprintf("a segment among %d connections to among 32", many), "x", goal,
		yard.Ratio(s[0], s[1]), note)
	y.row("a segment among 32 connections", "ns", yard.Goal{}, yard.Cost(s[0], 1e9),
		"both ends and the wire")
}

// echoing is requests and answers of 64 octets over n connections at random, both ends on one core.
func echoing(y *yardstick, n int) *yard.Contender {
	const burst = 32
	p := newPollers(y, n)
	clients, servers := make([]echo, n), make([]echo, n)
	p.establish(n, func(server bool, i int) knower {
		if server {
			servers[i].server = true
			return &servers[i]
		}
		return &clients[i]
	})
	r := rand.New(rand.NewPCG(1, 1))
	order := make([]uint32, 1<<20)
	for i := range order {
		order[i] = uint32(r.IntN(n))
	}
	var counters [2]stack.Counters
	frames := func() uint64 {
		p.server.Snapshot(&counters[0])
		p.client.Snapshot(&counters[1])
		return counters[0].RxFrames + counters[1].RxFrames
	}
	asked := 0
	return &yard.Contender{
		Name: fmt.Sprintf("segments among %d connections", n), Unit: "segments/s",
		Left: func(s *yard.Slice) {
			for from := frames(); !s.Over(); {
				for range 16 {
					for range burst {
						e := &clients[order[asked%len(order)]]
						e.owed += requestOctets
						e.Conn.Send()
						asked++
					}
					for p.turn(burst*250) > 0 {
					}
				}
				now := frames()
				s.Did(float64(now - from))
				from = now
			}
		},
		Check: func() error {
			got, answered := 0, 0
			for i := range clients {
				got, answered = got+servers[i].got, answered+clients[i].got
			}
			if want := asked * requestOctets; got != want || answered != want {
				return fmt.Errorf("of %d octets %d arrived and %d came back", want, got, answered)
			}
			return nil
		},
	}
}

// startupsPart is connections with MPA's start-up, opened and aborted, both ends on one core.
func startupsPart(y *yardstick) {
	var all []*yard.Contender
	for _, n := range []int{1, 32, 256} {
		all = append(all, starting(y, n, false), starting(y, n, true))
	}
	s := y.take(all...)
	made, ready := s[0], s[1]
	for i, x := range s {
		best := &made
		if i%2 == 1 {
			best = &ready
		}
		if x.Best() > (*best).Best() {
			*best = x
		}
		y.row(x.Name, "1/s", yard.Goal{}, yard.Rate(x, 1), "")
	}
	y.row("start-ups (TCP and MPA) a core, both ends on it", "1/s", atLeast(150_000),
		yard.Rate(ready, 1), "the fastest of those whose QueuePairs were there")
	y.row("start-ups, QueuePairs made and destroyed", "1/s", yard.Goal{}, yard.Rate(made, 1),
		"the fastest of these")
}

// starting is start-ups, so many at once; with ready the QueuePairs were made before the slice.
func starting(y *yardstick, outstanding int, ready bool) *yard.Contender {
	const perSecond = 400_000 // more than can be
	st := newStarts(y, outstanding)
	name := fmt.Sprintf("start-ups, %d at once", outstanding)
	if ready {
		name += ", QueuePairs there"
	}
	return &yard.Contender{
		Name: name, Unit: "connections/s", Pause: st.g.clock.pause,
		Resume: func() {
			if ready {
				st.prepare(int(perSecond * y.length.Seconds()))
			}
			st.g.clock.resume()
		},
		Left: func(s *yard.Slice) {
			began := st.made
			// one at least, where slices are short
			for from := began; (!s.Over() || st.made == began) && st.failed == nil; {
				st.step()
				if st.made > from {
					s.Did(float64(st.made - from))
					from = st.made
				}
			}
		},
		Check: func() error {
			st.g.clock.resume()
			if st.made == 0 {
				return errors.Join(st.failed, errors.New("no connection was made"))
			}
			return st.failed
		},
	}
}
