package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/bench/peers/measure"
)

func TestMedian(t *testing.T) {
	require.Zero(t, median(nil))
	require.Equal(t, 3.0, median([]float64{1, 3, 9}))
	require.Equal(t, 2.0, median([]float64{1, 1, 3, 9}))
}

func TestTable(t *testing.T) {
	p := &plan{mtus: []int{1500}, ways: []way{in, out},
		peers: []peer{{name: "ours"}, {name: "gvisor"}}}
	tab := newTable()
	for _, g := range []float64{30, 10, 20} { // in no order
		tab.add(cell{1500, in, "ours"}, sample{gbps: g, stackCPU: 0.25, kernelCPU: 0.5})
	}
	tab.add(cell{1500, in, "gvisor"}, sample{gbps: 8, stackCPU: 1, kernelCPU: 0.5})
	tab.add(cell{1500, out, "ours"}, sample{gbps: 5, stackCPU: 2, kernelCPU: 3})
	var b strings.Builder
	tab.print(&b, p)
	require.Equal(t, `| MTU | way | stack | Gbit/s | ours is | CPU s/GiB | other end's |
|---|---|---|---|---|---|---|
| 1500 | kernel -> stack | ours | 20.00 (10.00 to 30.00) | 1.00x | 0.250 | 0.500 |
| 1500 | kernel -> stack | gvisor | 8.00 (8.00 to 8.00) | 2.50x | 1.000 | 0.500 |
| 1500 | stack -> kernel | ours | 5.00 (5.00 to 5.00) | 1.00x | 2.000 | 3.000 |
| 1500 | stack -> kernel | gvisor | failed | | | |
`, b.String())
	b.Reset()
	require.NoError(t, tab.printJSON(&b, p))
	require.JSONEq(t, `[{"MTU":1500,"Way":"kernel -> stack","Peer":"ours","Gbps":[10,20,30]},
		{"MTU":1500,"Way":"kernel -> stack","Peer":"gvisor","Gbps":[8]},
		{"MTU":1500,"Way":"stack -> kernel","Peer":"ours","Gbps":[5]},
		{"MTU":1500,"Way":"stack -> kernel","Peer":"gvisor","Gbps":null}]`, b.String())
}

// The receiver's time counts, and octets that one end counts and the other does not are no goodput.
func TestJudge(t *testing.T) {
	slow := measure.Result{Octets: 1 << 30, Seconds: 4, CPU: 1}
	fast := measure.Result{Octets: 1 << 30, Seconds: 1, CPU: 2}
	s, err := judge(in, slow, fast)
	require.NoError(t, err)
	require.Equal(t, sample{slow.Gbps(), 1, 2}, s)
	s, err = judge(out, slow, fast)
	require.NoError(t, err)
	require.Equal(t, sample{fast.Gbps(), 1, 2}, s)

	fast.Octets--
	_, err = judge(in, slow, fast)
	require.ErrorContains(t, err, "octets")
	_, err = judge(in, measure.Result{}, measure.Result{})
	require.ErrorContains(t, err, "nothing")
}

func TestParse(t *testing.T) {
	bin := t.TempDir()
	for _, name := range []string{"ours", "gvisor", "kernel"} {
		require.NoError(t, os.WriteFile(filepath.Join(bin, name), nil, 0o755))
	}
	p, err := parse([]string{"-bin", bin, "-mtu", "9000", "-ways", "out", "-peers",
		"ours,gvisor-fdbased:--gro," + bin + "/kernel:-v"})
	require.NoError(t, err)
	require.Equal(t, []int{9000}, p.mtus)
	require.Equal(t, []way{out}, p.ways)
	require.Equal(t, []peer{
		{name: "ours", path: bin + "/ours", args: []string{}, tap: true},
		{name: "gvisor-fdbased:--gro", path: bin + "/gvisor", args: []string{"--link=fdbased", "--gro"},
			tap: true},
		{name: bin + "/kernel:-v", path: bin + "/kernel", args: []string{"-v"}, tap: true},
	}, p.peers)
	for _, c := range []struct{ args, says string }{
		{"-rounds 0", "-rounds 0"},
		{"-for 2h", "-for 2h"},
		{"-mtu 15o0", "-mtu"},
		{"-mtu 60", "-mtu"},
		{"-ways up", "-ways"},
		{"-peers theirs", "want ours"},
		{"-bin /nowhere", "scripts/bench-peers.sh builds it"},
	} {
		_, err := parse(append([]string{"-bin", bin}, strings.Fields(c.args)...))
		require.ErrorContains(t, err, c.says, c.args)
	}
}
