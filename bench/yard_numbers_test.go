package bench

import (
	"path/filepath"
	"slices"
	"strconv"
	"testing"

	"github.com/rnicd/rnicd/bench/yard"
)

// numbersPart is queue pairs connected by number beside those connected by librdmacm: perftest on
// each, and UCX over them beside UCX over TCP. One of its parts by itself:
// go test -run TestYardsticks/numbers/memif.
func numbersPart(y *yardstick) {
	for _, p := range []part{
		{"kernel", func(y *yardstick) {
			y.numbered("kernel's sockets", loopback(y), overKernel("127.0.0.1"))
			y.datagrams("kernel's sockets", loopback(y), overKernel("127.0.0.1"))
		}},
		{"memif", func(y *yardstick) {
			over := onMemif(filepath.Join(y.TempDir(), "memif"))
			y.numbered("memif", loopback(y), over)
			y.datagrams("memif", loopback(y), over)
		}},
		{"ucx", numbersUCX},
	} {
		y.Run(p.name, func(t *testing.T) {
			part := *y
			part.T = t
			p.run(&part)
		})
	}
}

// onMemif are rnicd's two ends on a cable of shared memory.
func onMemif(socket string) cableOf {
	return cableOf{
		flags:  []string{"--pmd", "memif", "--no-dad", "--socket", socket, "--idle", "interrupt"},
		server: []string{"--role", "server", "--addr", "10.9.0.1/24"},
		client: []string{"--addr", "10.9.0.2/24"}, addr: "10.9.0.1",
	}
}

// perftestPort is where perftest's server listens for a client that tells it numbers.
const perftestPort = 18515

// byNumber is perftest without -R. Its ends tell each other their numbers over a TCP connection,
// in which the server also sleeps while it has nothing to poll for; polls: over librdmacm, as those
// with -R, which poll all the time.
func (c cableOf) byNumber(f figures, program string, polls bool, args ...string) *pair {
	args = slices.Concat([]string{"--", program, "-F", "-s", strconv.Itoa(f.size), "-n",
		strconv.Itoa(f.iterations)}, args)
	p := &pair{name: program + " by number", port: perftestPort, figures: f.of}
	to := "127.0.0.1"
	if polls {
		args, to = append(args, "-z"), c.addr
		p.name, p.ready = program+" by number, told by librdmacm", rnicdReady
	}
	run := []string{*yardRnicd, "run", "--device", "roce"}
	p.server = slices.Concat(run, []string{"--verbose"}, c.flags, c.server, args)
	p.client = slices.Concat(run, c.flags, c.client, args, []string{to})
	return p
}

// numbered has each program run by number and by librdmacm, in turns.
func (y *yardstick) numbered(what string, at place, over cableOf) {
	type test struct {
		program string
		figures
		name string
		goal yard.Goal // by number to by librdmacm
	}
	bulk := figures{long, y.count(60_000, 10_000), messages}
	one := figures{8, y.count(20_000, 3000), times}
	tests := []test{
		{"ib_write_bw", bulk, "64 KiB", atLeast(0.9)}, {"ib_send_bw", bulk, "64 KiB", atLeast(0.9)},
		{"ib_send_bw", figures{64, y.count(1_000_000, 100_000), messages}, "64 octets", yard.Goal{}},
		{"ib_send_lat", one, "8 octets", atMost(1.1)}, {"ib_read_lat", one, "8 octets", atMost(1.1)},
		{"ib_write_lat", one, "8 octets", atMost(1.1)},
	}
	why := verbsMissing(y)
	for _, x := range tests {
		row := "numbers: " + what + ", " + x.name + ", "
		if why != "" {
			y.missing("x", x.goal, why, row+x.program)
			continue
		}
		all := y.compete(at, over.perftest(x.figures, x.program),
			over.byNumber(x.figures, x.program, false), over.byNumber(x.figures, x.program, true))
		latency := x.size == one.size
		for i, c := range all[1:] {
			goal := yard.Goal{} // like is compared with like: Reads need a server that does not sleep
			if told := i > 0; told == (x.program == "ib_read_lat") {
				goal = x.goal
			}
			y.numbersRatio(row, c, all[0], latency, goal)
		}
		for _, c := range all {
			y.numbersFigure(row, c, x.size, latency)
		}
	}
}

// datagrams has Sends of one packet over UD beside the same over RC, both by number.
func (y *yardstick) datagrams(what string, at place, over cableOf) {
	why := verbsMissing(y)
	for _, x := range []struct {
		program string
		figures
	}{
		{"ib_send_bw", figures{512, y.count(200_000, 50_000), messages}},
		{"ib_send_lat", figures{8, y.count(20_000, 3000), times}},
	} {
		row := "numbers: " + what + ", " + strconv.Itoa(x.size) + " octets, "
		if why != "" {
			y.missing("x", yard.Goal{}, why, row+x.program+" UD")
			continue
		}
		datagrams := over.byNumber(x.figures, x.program, false, "-c", "UD")
		datagrams.name = x.program + " UD by number"
		all := y.compete(at, over.byNumber(x.figures, x.program, false), datagrams)
		latency := x.program == "ib_send_lat"
		y.numbersRatio(row, all[1], all[0], latency, yard.Goal{})
		for _, c := range all {
			y.numbersFigure(row, c, x.size, latency)
		}
	}
}

// numbersRatio is figure 0 of a to that of b, times or rates.
func (y *yardstick) numbersRatio(row string, a, b contender, latency bool, goal yard.Goal) {
	row += a.name + " to " + b.name
	switch why := a.missing + b.missing; {
	case why != "":
		y.missing("x", goal, why, row)
	case latency:
		y.row(row, "x", goal, yard.Ratio(inverse(b.series[0]), inverse(a.series[0])), "")
	default:
		y.row(row, "x", goal, yard.Ratio(a.series[0], b.series[0]), "")
	}
}

// numbersFigure is figure 0 by itself: us, Gbit/s, or millions a second of what is small.
func (y *yardstick) numbersFigure(row string, c contender, size int, latency bool) {
	row += c.name
	unit, factor := "Gbit/s", float64(size)*8e-9
	if size < 1<<10 {
		unit, factor = "million/s", 1e-6
	}
	switch {
	case c.missing != "":
		y.missing(unit, yard.Goal{}, c.missing, row)
	case latency:
		rates := c.series[0].Rates
		y.row(row, "us", yard.Goal{}, yard.Samples(rates), worst(yard.Quantile(rates, 1)))
	default:
		s := c.series[0]
		y.row(row, unit, yard.Goal{}, yard.Rate(s, factor), worst(yard.Quantile(s.Rates, 0)*factor))
	}
}

// overUs is a pair of ucx_perftest over queue pairs by number and datagrams. As over TCP an end,
// with its engine, has a core.
func overUs(p *pair) *pair {
	q := *p
	q.name += " over us"
	q.env = []string{"UCX_TLS=rc_verbs,ud_verbs", "UCX_NET_DEVICES=rnicd0:1"}
	run := []string{*yardRnicd, "run", "--device", "roce", "--"}
	q.server, q.client = slices.Concat(run, p.server), slices.Concat(run, p.client)
	return &q
}

// numbersUCX is UCX over us beside UCX over TCP, both on a loopback.
func numbersUCX(y *yardstick) {
	const row = "numbers: kernel's sockets, "
	lat := ucxTest("UCX tag_lat", y.count(20_000, 3000),
		func(r ucxResult) []float64 { return []float64{r.percentile} }, "-t", "tag_lat", "-s", "8", "-w",
		"1000")
	put := ucxTest("UCX put", y.count(20_000, 5000), ucxMessages, "-t", "ucp_put_bw", "-s", "65536",
		"-w", "200")
	if why := verbsMissing(y); why != "" {
		y.missing("x", atMost(1.5), why, row+"8 octets, UCX tag_lat")
		y.missing("x", atLeast(2), why, row+"64 KiB, UCX put")
		return
	}
	all := y.compete(loopback(y), overUs(lat), lat, overUs(put), put)
	y.numbersRatio(row+"8 octets, ", all[0], all[1], true, atMost(1.5))
	y.numbersRatio(row+"64 KiB, ", all[2], all[3], false, atLeast(2))
	for i, c := range all {
		if i < 2 {
			y.numbersFigure(row+"8 octets, ", c, 8, true)
		} else {
			y.numbersFigure(row+"64 KiB, ", c, long, false)
		}
	}
}
