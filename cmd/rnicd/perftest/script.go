package perftest

import (
	"context"
	"fmt"

	"github.com/rnicd/rnicd/cmd/rnicd/perf"
)

// Program is one of perftest's.
type Program struct {
	Op      perf.Op // Write, Read or Send
	Latency bool
}

// Programs are those that are spoken.
var Programs = []Program{
	{perf.Write, false}, {perf.Read, false}, {perf.Send, false}, {perf.Write, true}, {perf.Read, true}, {perf.Send, true},
}

// String is the program's name.
func (p Program) String() string {
	if p.Latency {
		return fmt.Sprintf("ib_%v_lat", p.Op)
	}
	return fmt.Sprintf("ib_%v_bw", p.Op)
}

// waits is how often the ends wait for each other between their Places and the test.
func (p Program) waits() int {
	if p.Op == perf.Send || p.Latency {
		return 3
	}
	return 2
}

// after is how often they exchange their Places behind the test, before the figures and behind them.
func (p Program) after() (before int, figures bool, behind int) {
	switch {
	case p.Latency && p.Op == perf.Write:
		return 0, false, 0
	case p.Latency || p.Op == perf.Send:
		return 1, false, 0
	}
	return 1, true, 1
}

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

// greet is the hand-shake until the client is to make the second connection.
func (c *control) greet(ctx context.Context) (terms, error) {
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

// begin is the hand-shake from the second connection on until the test begins. The Place that counts is the one that both
// ends have filled in first.
func (c *control) begin(ctx context.Context, p Program, mine *Place) (Place, error) {
	if _, err := c.place(ctx, &Place{}); err != nil {
		return Place{}, err
	}
	theirs, err := c.place(ctx, mine)
	for i := 0; err == nil && i < p.waits(); i++ {
		_, err = c.place(ctx, mine)
	}
	return theirs, err
}

// finish is the hand-shake behind the test. It returns the peer's figures, if it has any.
func (c *control) finish(ctx context.Context, p Program, mine *Place, figures Report) (theirs Report, err error) {
	before, report, behind := p.after()
	for i := 0; err == nil && i < before; i++ {
		_, err = c.place(ctx, mine)
	}
	if report {
		for i, b := range figures.marshal() {
			if err == nil {
				b, err = c.swap(ctx, "figures", b)
			}
			if err == nil {
				theirs.take(i, b)
			}
		}
	}
	for i := 0; err == nil && i < behind; i++ {
		_, err = c.place(ctx, mine)
	}
	return theirs, err
}
