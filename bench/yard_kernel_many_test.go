package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/bench/yard"
	"github.com/rnicd/rnicd/rnic"
)

// seldom are connections over kernel sockets, both ends in this process, that carry a message of 64
// octets each now and then: in all as many a second, however many connections there are.
type seldom struct {
	conns int
	send  func(conn int, message []byte) error
	sent  []uint64        // messages of each connection
	taken []atomic.Uint64 // those that have arrived, in order and as they were sent
	all   atomic.Uint64
	wrong chan error // the first that was not
	depth int        // of the queues of a QueuePair
}

const (
	seldomLen   = 64
	seldomSlots = 4                      // messages of a connection under way
	seldomDials = 16                     // connections that are made at a time
	seldomEvery = 100 * time.Microsecond // a message of all connections together
)

func newSeldom(conns int) *seldom {
	return &seldom{conns: conns, sent: make([]uint64, conns), taken: make([]atomic.Uint64, conns),
		wrong: make(chan error, 1), depth: seldomSlots}
}

func (s *seldom) fail(err error) {
	select {
	case s.wrong <- err:
	default:
	}
}

// seldomMessage is the message of a connection that comes after n.
func seldomMessage(message []byte, conn int, n uint64) {
	for i := 0; i < seldomLen; i += 16 {
		binary.NativeEndian.PutUint64(message[i:], uint64(conn))
		binary.NativeEndian.PutUint64(message[i+8:], n+uint64(i))
	}
}

// arrived compares a message, of a connection that only the caller takes messages of. Before it
// counts the message, for which the next may be sent, it calls again.
func (s *seldom) arrived(message []byte, again func() error) {
	conn, want := int(binary.NativeEndian.Uint64(message)), [seldomLen]byte{}
	if conn >= s.conns {
		s.fail(fmt.Errorf("a message of connection %d, of %d", conn, s.conns))
		return
	}
	n := s.taken[conn].Load()
	if seldomMessage(want[:], conn, n); [seldomLen]byte(message) != want {
		s.fail(fmt.Errorf("message %d of connection %d: % x", n, conn, message))
	}
	if err := again(); err != nil {
		s.fail(err)
	}
	s.taken[conn].Store(n + 1)
	s.all.Add(1)
}

// run sends so many messages, each connection in its turn, none before it is due, and returns the
// time of a CPU that each has taken, in us.
func (s *seldom) run(messages int) (float64, error) { return s.runOver(s.conns, messages) }

// runOver is run over the first of the connections; the others rest.
func (s *seldom) runOver(conns, messages int) (float64, error) {
	began, from := time.Now(), cpuTime()
	all := s.all.Load() + uint64(messages)
	var message [seldomLen]byte
	tick, late := time.NewTicker(time.Millisecond), time.After(pairPatience)
	defer tick.Stop()
	for sent, next := 0, 0; s.all.Load() < all; {
		due := min(int(time.Since(began)/seldomEvery), messages)
		// A connection that is behind is waited for.
		for ; sent < due && s.sent[next]-s.taken[next].Load() < seldomSlots; sent++ {
			seldomMessage(message[:], next, s.sent[next])
			if err := s.send(next, message[:]); err != nil {
				return 0, err
			}
			s.sent[next]++
			next = (next + 1) % conns
		}
		select {
		case err := <-s.wrong:
			return 0, err
		case <-late:
			return 0, fmt.Errorf("%d of %d messages sent, %d yet to arrive", sent, messages,
				all-s.all.Load())
		case <-tick.C:
		}
	}
	return float64((cpuTime() - from).Nanoseconds()) / 1e3 / float64(messages), nil
}

// cpuTime is what this process has had of all CPUs.
func cpuTime() time.Duration {
	var u unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &u); err != nil {
		panic(err) // the arguments are constant
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// overRnic makes the connections QueuePairs of two Adapters over the kernel's sockets. end ends
// them.
func (s *seldom) overRnic(y *yardstick) (end func()) {
	return s.between(y, [2]rnic.Config{}, "127.0.0.1:0")
}

// between makes the connections QueuePairs of two Adapters, of which the second dials to an address
// of the first.
func (s *seldom) between(t testing.TB, cfg [2]rnic.Config, addr string) (end func()) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*patience)
	var ends []func()
	end = func() {
		for i := range ends {
			ends[len(ends)-1-i]()
		}
		cancel()
	}
	open := func(cfg rnic.Config) (*rnic.Adapter, *rnic.CompletionQueue, rnic.QPOptions) {
		cfg.RegionsMax = max(rnic.RegionsMaxDefault, s.conns+64) // each connection takes one
		if len(cfg.Pollers) == 0 {
			cfg.ConnsMax = s.conns + 1
		}
		a := must(rnic.Open(cfg))(t)
		ends = append(ends, func() { require.NoError(t, a.Close(ctx)) })
		cq := must(a.CreateCQ(s.conns*2*s.depth + 64))(t)
		return a, cq, rnic.QPOptions{PD: a.AllocPD(), SendCQ: cq, RecvCQ: cq, SendDepth: s.depth,
			RecvDepth: s.depth, InlineMax: seldomLen}
	}
	server, cq, opt := open(cfg[0])
	to := must(opt.PD.Register(make([]byte, s.conns*seldomSlots*seldomLen), rnic.LocalWrite))(t)
	l := must(server.Listen(ctx, addr, rnic.ListenOptions{}))(t)
	client, _, clientOpt := open(cfg[1])
	accepted, dialed := make([]*rnic.QueuePair, s.conns), make([]*rnic.QueuePair, s.conns)
	slot := func(k int) rnic.WorkRequest {
		return rnic.WorkRequest{ID: uint64(k), Local: to.Slice(k*seldomLen, seldomLen)}
	}
	accept := func(i int) error {
		req, err := l.Accept(ctx)
		if err != nil {
			return err
		}
		if accepted[i], err = server.CreateQP(opt); err != nil {
			return err
		}
		for k := range seldomSlots {
			if _, err := accepted[i].PostRecv(slot(i*seldomSlots + k)); err != nil {
				return err
			}
		}
		return req.Accept(ctx, accepted[i], rnic.ConnParam{})
	}
	dial := func(i int) (err error) {
		dialed[i], err = client.Dial(ctx, l.Addr().String(), clientOpt, rnic.ConnParam{})
		return err
	}
	making := make(chan error)
	for k := range 2 * seldomDials {
		go func() {
			one, err := [...]func(int) error{accept, dial}[k%2], error(nil)
			for i := k / 2; i < s.conns && err == nil; i += seldomDials {
				err = one(i)
			}
			making <- err
		}()
	}
	var err error
	for range 2 * seldomDials {
		err = errors.Join(err, <-making)
	}
	require.NoError(t, err)
	polled, stop := make(chan struct{}), make(chan struct{})
	waiting, stopWaiting := context.WithCancel(ctx)
	go func() {
		defer close(polled)
		var cs [64]rnic.Completion
		for {
			if err := cq.Wait(waiting); err != nil {
				return
			}
			for _, c := range cs[:cq.Poll(cs[:])] {
				select {
				case <-stop:
					return
				default:
				}
				if c.Status != rnic.Success || c.Op != rnic.OpRecv || c.Len != seldomLen {
					s.fail(fmt.Errorf("%v", c))
					return
				}
				s.arrived(to.Bytes()[c.ID*seldomLen:][:seldomLen], func() error {
					_, err := accepted[c.ID/seldomSlots].PostRecv(slot(int(c.ID)))
					return err
				})
			}
		}
	}()
	ends = append(ends, func() { close(stop); stopWaiting(); <-polled })
	s.send = func(i int, message []byte) error {
		_, err := dialed[i].PostSend(rnic.WorkRequest{Op: rnic.OpSend, Inline: message})
		return err
	}
	return end
}

// overSockets makes them plain sockets, each with a goroutine that reads.
func (s *seldom) overSockets(y *yardstick) (end func()) {
	l := must(net.Listen("tcp4", "127.0.0.1:0"))(y)
	defer l.Close()
	var conns []net.Conn
	for range s.conns {
		c := must(net.Dial("tcp4", l.Addr().String()))(y)
		r := must(l.Accept())(y)
		conns = append(conns, c, r)
		go func() {
			var message [seldomLen]byte
			for {
				if _, err := io.ReadFull(r, message[:]); err != nil {
					if !errors.Is(err, net.ErrClosed) && !errors.Is(err, io.EOF) {
						s.fail(err)
					}
					return
				}
				s.arrived(message[:], func() error { return nil })
			}
		}()
	}
	s.send = func(i int, message []byte) error {
		_, err := conns[2*i].Write(message)
		return err
	}
	return func() {
		for _, c := range conns {
			_ = c.Close()
		}
	}
}

// kernelMany is what a message costs when its connection is one of many that carry little.
func kernelMany(y *yardstick) {
	few, many, messages := 10, 1000, y.count(20_000, 5000)
	if y.dry {
		few, many, messages = 2, 20, 200
	}
	kinds := []struct {
		name  string
		conns int
		open  func(*seldom, *yardstick) (end func())
	}{
		{"Sends", few, (*seldom).overRnic}, {"Sends", many, (*seldom).overRnic},
		{"sockets", few, (*seldom).overSockets}, {"sockets", many, (*seldom).overSockets},
	}
	all := make([]*yard.Series, len(kinds))
	for i, k := range kinds {
		all[i] = &yard.Series{Name: fmt.Sprintf("%s over %d connections", k.name, k.conns), Unit: "us"}
	}
	for range y.runs() {
		for i, k := range kinds {
			apart := y.crew.Apart()
			s := newSeldom(k.conns)
			end := k.open(s, y)
			v, err := s.run(messages)
			end()
			require.NoError(y, err, all[i].Name)
			all[i].AddRun(v, apart)
		}
	}
	y.report.Add(nil, all)
	const what = "kernel: CPU time of a message of 64 octets, both ends, 10,000 a second"
	slower := func(a, b int) yard.Value { return yard.Ratio(inverse(all[b]), inverse(all[a])) }
	y.row(fmt.Sprintf("%s, Sends, %d connections to %d", what, many, few), "x", yard.Goal{},
		slower(1, 0), "")
	y.row(fmt.Sprintf("%s, Sends to bare sockets, %d connections", what, many), "x", yard.Goal{},
		slower(1, 3), "the sockets' octets have no CRC32C, and a goroutine of Go's reads each")
	for _, s := range all {
		y.row(fmt.Sprintf("%s, %s", what, s.Name), "us", yard.Goal{}, yard.Samples(s.Rates),
			worst(yard.Quantile(s.Rates, 1)))
	}
}
