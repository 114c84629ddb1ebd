package bench

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// Figures come out of what programs print, and none does when a program did less than it was told.
func TestFigures(t *testing.T) {
	const perftest = `
 #bytes #iterations    t_min[usec]    t_max[usec]  t_typical[usec]    t_avg[usec] ...
 8       5000    24.86    3708.78    48.18    	 54.40    	101.81 		83.46   	2322.08
---------------------------------------------------------------------------------------
`
	v, err := figures{8, 5000, times}.of("", perftest)
	require.NoError(t, err)
	require.Equal(t, []float64{48.18, 54.40, 83.46, 2322.08}, v)
	_, err = figures{8, 6000, times}.of("", perftest)
	require.ErrorContains(t, err, "5000 iterations, not 6000")
	_, err = figures{64, 5000, messages}.of("", perftest)
	require.ErrorContains(t, err, "no line with the figures")

	const ucx = `
|     Test     | # iterations | 50.0%ile | average | overall | ...
[thread 0]        10000      5.1     6.0   6.0  1.27  1.27   166666      166666
                  20000      5.253     9.019     9.020   0.85     0.86   110878     110879
`
	r, err := ucxFinal(ucx)
	require.NoError(t, err)
	require.Equal(t, ucxResult{20000, 5.253, 9.019, 9.020, 0.85, 0.86, 110878, 110879}, r)
	_, err = ucxFinal("[1] UCX ERROR\n")
	require.Error(t, err)
	put := ucxTest("put", 20000, func(r ucxResult) []float64 { return []float64{r.messagesAll} })
	v, err = put.figures("", ucx)
	require.NoError(t, err)
	require.Equal(t, []float64{110879}, v)
	put = ucxTest("put", 30000, func(ucxResult) []float64 { return nil })
	require.ErrorContains(t, errOf(put.figures("", ucx)), "20000 iterations, not 30000")

	const libfabric = `bytes   #sent   #ack     total       time     MB/sec    usec/xfer   Mxfers/sec
8       5k      =5k      78k         0.18s      0.43      18.47       0.05
`
	us, err := libfabricTime(libfabric, 5000)
	require.NoError(t, err)
	require.Equal(t, 18.47, us)
	_, err = libfabricTime(libfabric, 6000)
	require.ErrorContains(t, err, "not 6k")

	const iperf = `{"start": {}, "end": {"sum_sent": {"bytes": 1048576, "bits_per_second": 9e6},
		"sum_received": {"bytes": 1048000, "bits_per_second": 8e6}}}`
	rate, err := iperfRate(iperf, 1<<20)
	require.NoError(t, err)
	require.Equal(t, 1e6, rate)
	_, err = iperfRate(iperf, 2<<20)
	require.ErrorContains(t, err, "of 2097152")
	require.Error(t, errOf(iperfRate("iperf3: error", 1)))

	const fio = `fio: some remark
{"jobs": [{"error": 0, "write": {"total_ios": 2, "runtime": 2001, "bw_bytes": 4000}}]}
`
	rate, err = fioRate(fio, 2)
	require.NoError(t, err)
	require.Equal(t, 4000.0, rate)
	_, err = fioRate(fio, 3)
	require.ErrorContains(t, err, "not in 3 s")
	require.ErrorContains(t, errOf(fioRate(`{"jobs": [{"error": 22}]}`, 2)), "did well")
}

// System calls are counted by kind, those of no kind as others.
func TestCallCounts(t *testing.T) {
	perf := &callCounter{name: "perf", parse: func(text string) (map[string]float64, float64) {
		calls := perfCalls(text)
		return calls, calls["raw_syscalls:sys_enter"]
	}}
	strace := &callCounter{name: "strace", parse: straceCalls}
	for c, text := range map[*callCounter]string{
		perf: `# started on Sat Nov 28 00:49:40 2026

29,,raw_syscalls:sys_enter,807183609,100.00,,
3,,syscalls:sys_enter_write,807183609,100.00,,
1,,syscalls:sys_enter_sendmsg,807183609,100.00,,
5,,syscalls:sys_enter_read,807183609,100.00,,
<not counted>,,syscalls:sys_enter_recvmsg,0,100.00,,
7,,syscalls:sys_enter_futex,807183609,100.00,,
11,,syscalls:sys_enter_sched_yield,807183609,100.00,,
`,
		strace: `% time     seconds  usecs/call     calls    errors syscall
------ ----------- ----------- --------- --------- ----------------
 34.74    0.000033           1         7         2 futex
 20.00    0.000019           9         3           write
 20.00    0.000019           9         1           sendmsg
 20.00    0.000019           9         5         4 read
 20.00    0.000019           9        11           sched_yield
  2.00    0.000001           9         2           mmap
------ ----------- ----------- --------- --------- ----------------
100.00    0.000095           4        29         6 total
`,
	} {
		file := filepath.Join(t.TempDir(), c.name)
		require.NoError(t, os.WriteFile(file, []byte(text), 0o600))
		v, err := c.counts(file)
		require.NoError(t, err)
		require.Equal(t, []float64{29, 4, 5, 7, 11, 2}, v, c.name)
		require.NoError(t, os.WriteFile(file, nil, 0o600))
		require.ErrorContains(t, errOf(c.counts(file)), "has counted nothing")
	}
}
