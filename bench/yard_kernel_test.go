package bench

import (
	"fmt"
	"net/netip"
	"testing"

	"github.com/rnicd/rnicd/bench/yard"
	"github.com/rnicd/rnicd/internal/netlab"
)

// kernelPart is rnicd over the kernel's sockets, as a program gets it without a flag, beside what
// else runs over them: UCX, libfabric, iperf3, fio. One of its parts by itself:
// go test -run TestYardsticks/kernel/latency.
func kernelPart(y *yardstick) {
	for _, p := range []part{
		{"latency", kernelLatency}, {"goodput", kernelGoodput}, {"veth", kernelVeth},
		{"small", kernelSmall}, {"fio", kernelFio}, {"conns", kernelConns}, {"many", kernelMany},
		{"calls", kernelCalls},
	} {
		y.Run(p.name, func(t *testing.T) {
			part := *y
			part.T = t
			p.run(&part)
		})
	}
}

// overKernel are rnicd's two ends on the kernel's sockets.
func overKernel(addr string) cableOf {
	return cableOf{flags: []string{"--pmd", "kernel"}, addr: addr}
}

// loopback is a loopback that nobody else uses, if this may make one.
func loopback(y *yardstick) place {
	at := place{addr: "127.0.0.1"}
	if y.rootless() == "" {
		at.server = netlab.New(y)
		at.client = at.server
	}
	return at
}

// contender is a pair in the table: its name there, and what it has done. Without figures it says
// why in each of its rows.
type contender struct {
	*pair
	series []*yard.Series
}

// compete has pairs take turns.
func (y *yardstick) compete(at place, pairs ...*pair) []contender {
	all := make([]contender, len(pairs))
	for i, series := range y.rounds(at, pairs...) {
		all[i] = contender{pairs[i], series}
	}
	return all
}

// rateRow is figure k, a rate, times factor.
func (y *yardstick) rateRow(what string, c contender, k int, unit string, factor float64) {
	name := fmt.Sprintf("kernel: %s, %s", what, c.name)
	if c.missing != "" {
		y.missing(unit, yard.Goal{}, c.missing, name)
		return
	}
	s := c.series[k]
	y.row(name, unit, yard.Goal{}, yard.Rate(s, factor), worst(yard.Quantile(s.Rates, 0)*factor))
}

// timeRow is figure k, a time in us.
func (y *yardstick) timeRow(what string, c contender, k int) {
	name := fmt.Sprintf("kernel: %s, %s", what, c.name)
	if c.missing != "" {
		y.missing("us", yard.Goal{}, c.missing, name)
		return
	}
	s := c.series[k]
	y.row(name, "us", yard.Goal{}, yard.Samples(s.Rates), worst(yard.Quantile(s.Rates, 1)))
}

func worst(v float64) string { return fmt.Sprintf("worst run %.3g", v) }

// ratioRow is figure ka of a to figure kb of b, both of them rates.
func (y *yardstick) ratioRow(what string, a contender, ka int, b contender, kb int) {
	y.compareRow(what, a, b, func() yard.Value { return yard.Ratio(a.series[ka], b.series[kb]) })
}

// slownessRow is the same of times.
func (y *yardstick) slownessRow(what string, a contender, ka int, b contender, kb int) {
	y.compareRow(what, a, b, func() yard.Value {
		return yard.Ratio(inverse(b.series[kb]), inverse(a.series[ka]))
	})
}

func (y *yardstick) compareRow(what string, a, b contender, value func() yard.Value) {
	name := fmt.Sprintf("kernel: %s, %s", what, a.name)
	if a.pair != b.pair {
		name += " to " + b.name
	}
	for _, c := range []contender{a, b} {
		if c.missing != "" {
			y.missing("x", yard.Goal{}, c.missing, name)
			return
		}
	}
	y.row(name, "x", yard.Goal{}, value(), "")
}

// inverse has rates of times, so that the best decile is the shortest.
func inverse(s *yard.Series) *yard.Series {
	r := &yard.Series{Name: s.Name}
	for _, v := range s.Rates {
		r.Rates = append(r.Rates, 1/v)
	}
	return r
}

// kernelMissing says why pairs of rnicd cannot run.
func (y *yardstick) kernelMissing(unit string, names ...string) bool {
	why := verbsMissing(y)
	if why != "" {
		for _, name := range names {
			y.missing(unit, yard.Goal{}, why, "kernel: "+name)
		}
	}
	return why != ""
}

// Figures of the contenders in a latency.
const (
	figureMedian = iota
	figureAverage
	figure99
)

// kernelLatency is a message of 8 octets there and back, one way of it.
func kernelLatency(y *yardstick) {
	const what = "8 octets one way"
	if y.kernelMissing("x", what) {
		return
	}
	n := y.count(20_000, 3000)
	over, f := overKernel("127.0.0.1"), figures{8, n, times}
	percentile := func(r ucxResult) []float64 { return []float64{r.percentile, r.average} }
	tag := []string{"-t", "tag_lat", "-s", "8", "-w", "1000"}
	all := y.compete(loopback(y),
		over.perftest(f, "ib_send_lat"), over.perftest(f, "ib_write_lat"),
		over.perf(f, "send", "lat"), over.perf(f, "write", "lat"),
		ucxTest("UCX tag_lat", n, percentile, tag...),
		ucxTest("UCX tag_lat -R 99", n, percentile, append(tag, "-R", "99")...),
		libfabricTest("libfabric fi_pingpong", 8, n))
	ours, ucx, ucx99, fabric := all[:4], all[4], all[5], all[6]
	for _, c := range ours {
		y.slownessRow(what+", median", c, figureMedian, ucx, figureMedian)
		y.slownessRow(what+", average", c, figureAverage, fabric, 0)
	}
	for _, c := range ours {
		y.slownessRow(what+", 99 % to the median", c, figure99, c, figureMedian)
	}
	y.slownessRow(what+", 99 % to the median", ucx99, figureMedian, ucx,
		figureMedian)
	for _, c := range append(ours, ucx) {
		y.timeRow(what+", median", c, figureMedian)
		y.timeRow(what+", average", c, figureAverage)
	}
	y.timeRow(what+", average", fabric, 0)
	for _, c := range ours {
		y.timeRow(what+", 99 %", c, figure99)
	}
	y.timeRow(what+", 99 %", ucx99, figureMedian)
}

const (
	long         = 64 << 10
	longGigabits = long * 8e-9 // of a message
)

// kernelBulk are Writes, Sends and Reads of 64 KiB, those of C programs first.
func kernelBulk(y *yardstick, over cableOf) []*pair {
	f := figures{long, y.count(100_000, 40_000), messages}
	return []*pair{
		over.perftest(f, "ib_write_bw"), over.perftest(f, "ib_send_bw"), over.perftest(f, "ib_read_bw"),
		over.perf(f, "write", "bw"), over.perf(f, "send", "bw"), over.perf(f, "read", "bw"),
	}
}

// kernelGoodput is 64 KiB after 64 KiB over the loopback.
func kernelGoodput(y *yardstick) {
	const what = "64 KiB, loopback"
	if y.kernelMissing("x", what) {
		return
	}
	n := y.count(100_000, 40_000)
	pairs := append(kernelBulk(y, overKernel("127.0.0.1")),
		iperfTest("iperf3", n, "127.0.0.1"),
		ucxTest("UCX put", y.count(40_000, 10_000), ucxMessages, "-t", "ucp_put_bw", "-s", "65536", "-w",
			"200"),
		libfabricTest("libfabric fi_pingpong", long, y.count(20_000, 3000)))
	// One message at a time: what crosses the loopback in a second.
	fabric := pairs[8]
	times := fabric.figures
	fabric.figures = func(server, client string) ([]float64, error) {
		v, err := times(server, client)
		return []float64{1e6 / v[0]}, err
	}
	all := y.compete(loopback(y), pairs...)
	ours, iperf, ucx := all[:6], all[6], all[7]
	for _, c := range ours {
		y.ratioRow(what, c, 0, iperf, 0)
	}
	for _, c := range ours {
		y.ratioRow(what, c, 0, ucx, 0)
	}
	for _, c := range all {
		y.rateRow(what, c, 0, "Gbit/s", longGigabits)
	}
}

// kernelVeth is the same of C programs, and iperf3, between two namespaces: with frames of the MTU,
// as a wire carries them, and with the offloads that a veth of containers has.
func kernelVeth(y *yardstick) {
	for i, c := range []struct {
		mtu     int
		name    string
		prepare func(*netlab.Namespace, testing.TB, string)
	}{
		{1500, "", (*netlab.Namespace).NoOffload}, {9000, "", (*netlab.Namespace).NoOffload},
		{1500, ", offloads", nil},
	} {
		what := fmt.Sprintf("64 KiB, veth, MTU %d%s", c.mtu, c.name)
		if y.kernelMissing("x", what) {
			continue
		}
		if why := y.rootless(); why != "" {
			y.missing("x", yard.Goal{}, why, "kernel: "+what)
			continue
		}
		a, b := netlab.New(y), netlab.New(y)
		addr := func(host int) []netip.Prefix {
			return []netip.Prefix{netip.MustParsePrefix(fmt.Sprintf("10.8.%d.%d/24", i+1, host))}
		}
		netlab.VethWith(y, a, netlab.Device{Name: "yard0", MTU: c.mtu, Addrs: addr(1)}, b,
			netlab.Device{Name: "yard1", MTU: c.mtu, Addrs: addr(2)}, c.prepare)
		to := addr(1)[0].Addr().String()
		pairs := append(kernelBulk(y, overKernel(to))[:3],
			iperfTest("iperf3", y.count(100_000, 40_000), to))
		all := y.compete(place{server: a, client: b}, pairs...)
		for _, c := range all[:3] {
			y.ratioRow(what, c, 0, all[3], 0)
		}
		for _, c := range all {
			y.rateRow(what, c, 0, "Gbit/s", longGigabits)
		}
	}
}

// kernelSmall is Sends of 64 octets, as many as there can be.
func kernelSmall(y *yardstick) {
	const what = "64 octets"
	if y.kernelMissing("x", what) {
		return
	}
	f := figures{64, y.count(2_000_000, 1_000_000), messages}
	over := overKernel("127.0.0.1")
	all := y.compete(loopback(y), over.perftest(f, "ib_send_bw"), over.perf(f, "send", "bw"),
		ucxTest("UCX tag_bw", f.iterations, ucxMessages, "-t", "tag_bw", "-s", "64", "-w", "1000"),
		ucxTest("UCX ucp_am_bw", f.iterations, ucxMessages, "-t", "ucp_am_bw", "-s", "64", "-w", "1000"))
	for _, c := range all[:2] {
		for _, peer := range all[2:] {
			y.ratioRow(what, c, 0, peer, 0)
		}
	}
	for _, c := range all {
		y.rateRow(what, c, 0, "million/s", 1e-6)
	}
}
