package perftest

import (
	"errors"
	"fmt"

	"github.com/rnicd/rnicd/internal/tools/perf"
)

// Shape is what perftest's -a, -b and -q say. Both ends are told the same.
type Shape struct {
	All  bool // -a: one length after the other, from 2 octets to SizeMax, doubling, instead of Size
	Both bool // -b: both ends send, or read, at the same time; of bandwidths
	QPs  int  // -q: connections that are measured at the same time, 1 to QPsMax; of bandwidths. 0 is 1
}

// Bounds of a test. SizeMax is perftest's own: that of its -a.
const (
	SizeMax   = 8 << 20
	DepthMax  = 4096
	QPsMax    = 64
	memoryMax = 512 << 20 // of all connections of one client
)

const allFirst = 2 // octets

// plan is a whole test: what both ends were told.
type plan struct {
	perf.Test // Size: the longest
	Shape
}

// newPlan makes a plan as perftest's programs make it of what they are told, or says why no program
// makes such a test.
func newPlan(t perf.Test, s Shape) (*plan, error) {
	s.QPs = max(s.QPs, 1)
	if s.All {
		t.Size = SizeMax
	}
	if t.Op != perf.Send {
		t.RxDepth = 1
	}
	t.TxDepth = max(t.TxDepth, 1)
	if t.Duration == 0 {
		t.TxDepth, t.RxDepth = min(t.TxDepth, max(t.Iterations, 1)), min(t.RxDepth, t.Iterations)
	}
	t.ServerFirst = t.Op == perf.Write && t.Latency
	t.Both, t.Alone = s.Both, t.Duration > 0
	p := &plan{Test: t, Shape: s}
	return p, p.check()
}

func (p *plan) check() error {
	switch {
	case p.Op != perf.Write && p.Op != perf.Read && p.Op != perf.Send:
		return fmt.Errorf("perftest: %v tests are not spoken", p.Op)
	case p.Size < 1 || p.Size > SizeMax:
		return fmt.Errorf("perftest: messages of %d octets, 1 to %d possible", p.Size, SizeMax)
	case p.Iterations < 1 && p.Duration <= 0:
		return errors.New("perftest: a number of iterations is needed, the same at both ends, or " +
			"a duration")
	case p.Iterations != 0 && p.Duration != 0:
		return errors.New("perftest: a number of iterations and a duration: one of them")
	case p.Warmup != 0:
		return errors.New("perftest: no warm-up: the other end would not know of it")
	case p.All && p.Duration != 0:
		return errors.New("perftest: all lengths have a number of iterations, and no duration")
	case p.Latency && (p.Shape.Both || p.QPs > 1):
		return errors.New("perftest: both directions, and several connections, are of bandwidth " +
			"tests only")
	case p.QPs > QPsMax:
		return fmt.Errorf("perftest: %d connections, 1 to %d possible", p.QPs, QPsMax)
	case p.QPs*2*p.Size > memoryMax:
		return fmt.Errorf("perftest: %d connections with messages of %d octets need more than the %d "+
			"octets that a client has", p.QPs, p.Size, memoryMax)
	case p.TxDepth < 1 || p.TxDepth > DepthMax || p.RxDepth < 1 || p.RxDepth > DepthMax:
		return fmt.Errorf("perftest: depths %d and %d, 1 to %d possible", p.TxDepth, p.RxDepth, DepthMax)
	}
	return nil
}

// tests are those that are made, one after the other.
func (p *plan) tests() []perf.Test {
	if !p.All {
		return []perf.Test{p.Test}
	}
	var all []perf.Test
	for n := allFirst; n <= SizeMax; n *= 2 {
		t := p.Test
		t.Size = n
		all = append(all, t)
	}
	return all
}

func (p *plan) program() Program { return Program{p.Op, p.Latency} }

// String is the program with what it is told.
func (p *plan) String() string { return Describe(p.Test, p.Shape) }

// Describe names a program with what it is told of a Shape.
func Describe(t perf.Test, s Shape) string {
	text := Program{t.Op, t.Latency}.String()
	if s.All {
		text += " -a"
	}
	if s.Both {
		text += " -b"
	}
	if s.QPs > 1 {
		text += fmt.Sprintf(" -q %d", s.QPs)
	}
	return text
}
