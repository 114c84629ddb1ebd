package perftest

import (
	"context"
	"fmt"

	"github.com/rnicd/rnicd/internal/tools/perf"
)

// Program is one of perftest's.
type Program struct {
	Op      perf.Op // Write, Read or Send
	Latency bool
}

// Programs are those that are spoken.
var Programs = []Program{
	{perf.Write, false}, {perf.Read, false}, {perf.Send, false}, {perf.Write, true}, {perf.Read, true},
	{perf.Send, true},
}

// String is the program's name.
func (p Program) String() string {
	if p.Latency {
		return fmt.Sprintf("ib_%v_lat", p.Op)
	}
	return fmt.Sprintf("ib_%v_bw", p.Op)
}

// rounds says in how many rounds the ends exchange their Places before the first test; true: of all
// connections, false: of the first one, to wait for each other.
func (p Program) rounds() []bool {
	switch {
	case p.Latency && p.Op == perf.Send: // of latencies there is one connection
		return []bool{true, false, false}
	case p.Latency:
		return []bool{true, false, false, false}
	case p.Op == perf.Send:
		return []bool{true, false, true}
	}
	return []bool{true, true, false}
}

// figures: the client tells its figures after the last test.
func (p Program) figures(both bool) bool { return !p.Latency && p.Op != perf.Send && !both }

// closes: they wait for each other once more at the end.
func (p Program) closes() bool { return !p.Latency || p.Op != perf.Write }

// Both ends start with these: a page, and a cache line.
const (
	cycleLen = 4096
	lineLen  = 64
	cycleMax = 1 << 20
)

// terms are what came of the first messages.
type terms struct {
	cycle int // short messages go round over so many octets of memory
}

// greet is the handshake until the client is to make the second connection. A server calls last, if
// it is given, before it says so.
func (c *control) greet(ctx context.Context, last func(context.Context) error) (terms, error) {
	mine := hello(Version)
	b, err := c.swap(ctx, "version", mine[:])
	if err != nil {
		return terms{}, err
	}
	if err := Hello(b).check(); err != nil {
		return terms{}, err
	}
	cycle, err := c.larger(ctx, "memory to go round in", cycleLen)
	if err != nil {
		return terms{}, err
	}
	if _, err := c.larger(ctx, "cache line", lineLen); err != nil {
		return terms{}, err
	}
	if b, err = c.swap(ctx, "path MTU", mtu1024.marshal()); err != nil {
		return terms{}, err
	}
	if _, err := parseMTU(b); err != nil {
		return terms{}, err
	}
	c.before = last
	_, err = c.place(ctx, &Place{})
	return terms{cycle: cycle}, err
}

// larger swaps a number; the larger one counts.
func (c *control) larger(ctx context.Context, what string, mine uint32) (int, error) {
	b, err := c.swap(ctx, what, bigEndian(mine))
	if err != nil {
		return 0, err
	}
	theirs := fromBigEndian(b)
	if theirs > cycleMax {
		return 0, fmt.Errorf("%w: %s: %d octets, %d at most", errMalformed, what, theirs, cycleMax)
	}
	return int(max(mine, theirs)), nil
}

func (c *control) place(ctx context.Context, mine *Place) (Place, error) {
	b, err := c.swap(ctx, "place", mine.marshal())
	if err != nil {
		return Place{}, err
	}
	return parsePlace(b), nil
}

// begin is the handshake from the last of the connections that are measured on until the first
// test. The Places that count are those that both ends have filled in first.
func (c *control) begin(ctx context.Context, p Program, mine []Place) (theirs []Place, err error) {
	if _, err := c.place(ctx, &Place{}); err != nil {
		return nil, err
	}
	for _, all := range p.rounds() {
		n := 1
		if all {
			n = len(mine)
		}
		for i := range n {
			place, err := c.place(ctx, &mine[i])
			if err != nil {
				return nil, err
			}
			if len(theirs) <= i {
				theirs = append(theirs, place)
			}
		}
	}
	return theirs, nil
}

// tests is the handshake around the tests of a plan, and after them. run makes one and returns its
// figures, told is given those of both ends where they are exchanged.
//
//	                     -b: before each    -b: after each           at the end
//	ib_write_bw, _read_  Place              -a: Place; figures       without -b: Place, figures; Place
//	ib_send_bw           Place, always      figures; -a: Place       Place
//	ib_send_lat          Place, always                               Place
//	ib_read_lat                                                      Place
//	ib_write_lat
func (c *control) tests(ctx context.Context, p *plan, mine *Place,
	run func(perf.Test) (Report, error), told func(t perf.Test, mine, theirs Report)) error {
	program := p.program()
	wait := func(when bool) error {
		if !when {
			return nil
		}
		_, err := c.place(ctx, mine)
		return err
	}
	sends, last := p.Op == perf.Send, Report{}
	for _, t := range p.tests() {
		if err := wait(sends || p.Shape.Both); err != nil {
			return err
		}
		report, err := run(t)
		if err == nil {
			err = wait(p.All && p.Shape.Both && !sends)
		}
		if err == nil && p.Shape.Both && !(sends && t.Duration > 0) {
			err = c.figures(ctx, t, report, told)
		}
		if err == nil {
			err = wait(p.All && sends && !p.Latency)
		}
		if err != nil {
			return err
		}
		last = report
	}
	if program.figures(p.Shape.Both) {
		if err := wait(true); err != nil {
			return err
		}
		if err := c.figures(ctx, p.Test, last, told); err != nil {
			return err
		}
	}
	return wait(program.closes())
}

// figures swaps those of a test.
func (c *control) figures(ctx context.Context, t perf.Test, mine Report,
	told func(t perf.Test, mine, theirs Report)) error {
	var theirs Report
	for i, b := range mine.marshal() {
		b, err := c.swap(ctx, "figures", b)
		if err != nil {
			return err
		}
		theirs.take(i, b)
	}
	told(t, mine, theirs)
	return nil
}
