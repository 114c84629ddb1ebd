package interop

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// perftestCell is a program of perftest with what both of its ends are told.
type perftestCell struct {
	program    string
	size       int // 0: -a, each power of two up to 8 MiB
	iterations int // 0: for two seconds
	txDepth    int
	rxDepth    int
	flags      string // -b, -q
	crc        bool
}

var perftestPrograms = []string{
	"ib_write_bw", "ib_read_bw", "ib_send_bw", "ib_write_lat", "ib_read_lat", "ib_send_lat",
}

// latency: the program measures that.
func (c perftestCell) latency() bool { return strings.HasSuffix(c.program, "_lat") }

func (c perftestCell) String() string {
	name := c.program + c.flags
	switch {
	case c.size == 0:
		name += " -a"
	case c.iterations == 0:
		name += " -D 2"
	}
	if c.size > 0 {
		name += fmt.Sprintf(", %d octets", c.size)
	}
	if c.crc {
		name += ", CRC"
	}
	return name
}

// line is the command line of either end.
func (c perftestCell) line() string {
	s := c.program + " -R -F -p PORT" + c.flags
	if c.size > 0 {
		s += fmt.Sprintf(" -s %d", c.size)
	} else {
		s += " -a"
	}
	if c.iterations > 0 {
		s += fmt.Sprintf(" -n %d", c.iterations)
	} else {
		s += " -D 2"
	}
	if !c.latency() {
		s += fmt.Sprintf(" -t %d", c.txDepth)
	}
	if strings.HasPrefix(c.program, "ib_send") {
		s += fmt.Sprintf(" -r %d", c.rxDepth)
	}
	return s
}

func (c perftestCell) exchange() exchange {
	x := exchange{server: c.line(), client: c.line() + " HOST"}
	if !c.crc {
		x.flags = noCRC
	}
	return x
}

// queuePairs is what -q says.
func (c perftestCell) queuePairs() int {
	if _, n, ok := strings.Cut(c.flags, "-q "); ok {
		q, _ := strconv.Atoi(n)
		return q
	}
	return 1
}

// table: the program printed a line of figures for each length. They may be "inf", where it could
// not tell the emulated clock's rate.
func (c perftestCell) table(t *testing.T, printed string) {
	t.Helper()
	sizes := []int{c.size}
	if c.size == 0 {
		sizes = nil
		for n := 2; n <= 8<<20; n *= 2 {
			sizes = append(sizes, n)
		}
	}
	count := `\d+`
	if c.iterations > 0 {
		count = strconv.Itoa(c.iterations * c.queuePairs())
	}
	for _, n := range sizes {
		require.Regexp(t, fmt.Sprintf(`(?m)^\s*%d\s+%s\s+\S+\s+\S+`, n, count), printed)
	}
}

// perftestCells are all programs, of short and long messages with and without CRC, and their
// shapes: all lengths, so much time, both directions, several queue pairs. perftest makes five
// iterations at least; with -q and short messages it waits for ever for itself unless they are a
// multiple of its -t (it has one completion for so many, and counts too many).
func perftestCells() (all []perftestCell) {
	for _, p := range perftestPrograms {
		for _, size := range []int{2, 3000, 20000} { // the longest is several FPDUs
			for _, crc := range []bool{false, true} {
				if size == 3000 && !crc {
					continue
				}
				all = append(all, perftestCell{
					program: p, size: size, crc: crc, iterations: 200, txDepth: 64, rxDepth: 64,
				})
			}
		}
		all = append(all, perftestShapes(p)...)
	}
	return all
}

func perftestShapes(program string) (all []perftestCell) {
	one := perftestCell{program: program, size: 5000, iterations: 128, txDepth: 32, rxDepth: 64}
	every := perftestCell{program: program, iterations: 5, txDepth: 5, rxDepth: 5}
	timed := one
	timed.iterations = 0
	all = append(all, every, timed)
	if one.latency() {
		return all
	}
	with := func(c perftestCell, flags string) { c.flags = flags; all = append(all, c) }
	with(one, " -b")
	with(one, " -q 3")
	with(every, " -b")
	with(one, " -b -q 2")
	with(timed, " -b")
	return all
}

// quickCells is how many cells -quick draws: four minutes on two cores, without KVM.
const quickCells = 12

// drawnCells are all cells; with -quick, one of all lengths in one direction, which takes two
// minutes, and some of one length, drawn anew in each run.
func drawnCells(t *testing.T) []perftestCell {
	all := perftestCells()
	if !*quick {
		return all
	}
	rand.Shuffle(len(all), func(i, j int) { all[i], all[j] = all[j], all[i] })
	var drawn []perftestCell
	lengths, others := 1, quickCells
	for _, c := range all {
		left := &others
		if c.size == 0 {
			left = &lengths
		}
		if *left > 0 && (c.size > 0 || c.flags == "") {
			*left--
			drawn = append(drawn, c)
		}
	}
	t.Logf("-quick: %d of %d cells: %v", len(drawn), len(all), drawn)
	return drawn
}

// perftest in either role: both ends succeed, and the client prints its table; with -b the server
// does, too.
func TestProgramsPerftest(t *testing.T) {
	for _, c := range drawnCells(t) {
		for _, role := range []string{"our server", "our client"} {
			t.Run(c.String()+"/"+role, func(t *testing.T) {
				overPrograms(t, "std", func(p *programEnd) {
					turn := p.serve
					if role == "our client" {
						turn = p.dial
					}
					ends := turn(c.exchange())
					c.table(t, ends.client)
					if strings.Contains(c.flags, "-b") {
						c.table(t, ends.server)
					}
				})
			})
		}
	}
}
