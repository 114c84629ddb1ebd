package interop

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/tools/perf"
	"github.com/rnicd/rnicd/internal/tools/perftest"
	"github.com/rnicd/rnicd/rnic"
)

// shapeCell is a program with what else than a length and a number it is told. perftest makes five
// iterations at least; with -q and short messages it waits for ever for itself unless they are a
// multiple of its -t (it has one completion for so many, and counts too many).
type shapeCell struct {
	perf.Test
	perftest.Shape
}

func shapeCells() (all []shapeCell) {
	add := func(p perftest.Program, s perftest.Shape, seconds int) {
		c := shapeCell{perf.Test{Op: p.Op, Latency: p.Latency, Size: 5000, Iterations: 128, TxDepth: 32,
			RxDepth: 64}, s}
		switch {
		case seconds > 0:
			c.Iterations, c.Duration = 0, time.Duration(seconds)*time.Second
		case s.All:
			c.Iterations, c.TxDepth, c.RxDepth = 5, 5, 5
		}
		all = append(all, c)
	}
	for _, p := range perftest.Programs {
		if !*quick || p == perftest.Programs[0] { // half a minute each
			add(p, perftest.Shape{All: true}, 0)
		}
		add(p, perftest.Shape{}, 2)
		if p.Latency {
			continue
		}
		add(p, perftest.Shape{Both: true}, 0)
		add(p, perftest.Shape{QPs: 3}, 0)
		if !*quick {
			add(p, perftest.Shape{All: true, Both: true}, 0)
			add(p, perftest.Shape{Both: true, QPs: 2}, 0)
			add(p, perftest.Shape{Both: true}, 2)
		}
	}
	return all
}

func (c shapeCell) String() string {
	text := perftest.Describe(c.Test, c.Shape)
	if c.Duration > 0 {
		text += fmt.Sprintf(" -D %d", int(c.Duration.Seconds()))
	}
	return text
}

// command is the program's, with all that it is told.
func (c shapeCell) command(port int) string {
	s := fmt.Sprintf("exec %v -R -F -d siw0 -p %d", c, port)
	if !c.All {
		s += fmt.Sprintf(" -s %d", c.Size)
	}
	if c.Duration == 0 {
		s += fmt.Sprintf(" -n %d", c.Iterations)
	}
	if !c.Latency {
		s += fmt.Sprintf(" -t %d", c.TxDepth)
	}
	if c.Op == perf.Send {
		s += fmt.Sprintf(" -r %d", c.RxDepth)
	}
	return s
}

// table: the program printed a line of figures for each length. They may be "inf", where it could
// not tell the emulated clock's rate.
func (c shapeCell) table(r *rig, printed string) {
	r.t.Helper()
	sizes := []int{c.Size}
	if c.All {
		sizes = nil
		for n := 2; n <= perftest.SizeMax; n *= 2 {
			sizes = append(sizes, n)
		}
	}
	count := `\d+`
	if c.Duration == 0 {
		count = strconv.Itoa(c.Iterations * max(c.QPs, 1))
	}
	for _, n := range sizes {
		require.Regexp(r.t, fmt.Sprintf(`(?m)^\s*%d\s+%s\s+\S+\s+\S+`, n, count), printed)
	}
}

func overShapes(t *testing.T, f func(r *rig, c shapeCell, opt rnic.ConnParam)) {
	for _, c := range shapeCells() {
		t.Run(c.String(), func(t *testing.T) {
			over(t, func(r *rig) {
				r.siw("std")
				f(r, c, rnic.ConnParam{NoMarkers: true, NoCRC: true})
			})
		})
	}
}

// A program in the guest measures our server in each shape, and both end well; the octets that are
// due have come.
func TestSiwPerftestShapesClient(t *testing.T) {
	overShapes(t, func(r *rig, c shapeCell, opt rnic.ConnParam) {
		gone := make(chan perftest.Served, 1)
		s, err := perftest.NewServer(perftest.ServerConfig{
			Adapter: r.adapter, Test: c.Test, Shape: c.Shape, Conn: opt, IdleTimeout: patience,
			GreetTimeout: patience, Done: func(s perftest.Served) { gone <- s },
		})
		require.NoError(r.t, err)
		l := r.listen()
		ctx, stop := context.WithCancel(r.ctx)
		served := make(chan error, 1)
		go func() { served <- s.Serve(ctx, l) }()
		defer func() { stop(); require.NoError(r.t, <-served) }()
		job := r.start("%s %s", c.command(r.port), r.host)
		var out perftest.Served
		select {
		case out = <-gone:
		case <-r.ctx.Done():
			require.FailNow(r.t, "our server is not done with its client", "%s", job)
		}
		require.NoError(r.t, out.Err, "%s", job)
		r.ends(job)
		c.table(r, job.String())
		if c.Op == perf.Read {
			require.NotZero(r.t, out.Reads)
		} else {
			require.GreaterOrEqual(r.t, out.Octets, uint64(c.Size*c.Iterations*max(c.QPs, 1)))
		}
	})
}

// Our end measures a program of perftest's in the guest in each shape.
func TestSiwPerftestShapesServer(t *testing.T) {
	overShapes(t, func(r *rig, c shapeCell, opt rnic.ConnParam) {
		port := newPort()
		job := r.start("%s", c.command(port))
		_, err := vm.Run(r.ctx, fmt.Sprintf("listening %d", port))
		require.NoError(r.t, err, "%s", job)
		opt.Quirks.WakeUp = rnic.WakeUpDefault
		rows := 0
		res, err := perftest.Run(r.ctx, perftest.ClientConfig{
			Adapter: r.adapter, Addr: net.JoinHostPort(guestAddr.Addr().String(), strconv.Itoa(port)),
			Test: c.Test, Shape: c.Shape, Conn: opt,
			Measured: func(perf.Result) { rows++ },
		})
		require.NoError(r.t, err, "%s", job)
		require.NotZero(r.t, res.Iterations)
		if c.All {
			require.Equal(r.t, 23, rows)
		}
		if c.Duration == 0 {
			require.EqualValues(r.t, c.Iterations*max(c.QPs, 1), res.Iterations)
		}
		r.ends(job)
		if c.Shape.Both {
			c.table(r, job.String())
		}
	})
}
