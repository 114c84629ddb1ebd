package cgroup

// Quota is what control groups leave this process of the CPUs.
type Quota struct {
	CPUs      float64 // 0: all
	Limit     string  // the file that says so
	Throttled uint64  // periods in which the group was stopped because it had used its quota
	Nanos     uint64  // for so long
}

// CPUQuota is the least quota of all groups around this process. root is where /proc and /sys are
// looked for.
func CPUQuota(root string) (q Quota) {
	for _, g := range Of(root, "cpu") {
		var most, period int64
		var limited bool
		file, stopped, unit := "cpu.max", "throttled_usec", uint64(1000)
		if g.V1 {
			file, stopped, unit = "cpu.cfs_quota_us", "throttled_time", 1
			most, limited = g.Number(file)
			period, _ = g.Number("cpu.cfs_period_us")
		} else {
			most, period, limited = twoNumbers(g.text(file))
		}
		if !limited || most <= 0 || period <= 0 {
			continue
		}
		if cpus := float64(most) / float64(period); q.CPUs == 0 || cpus < q.CPUs {
			periods, _ := g.Keyed("cpu.stat", "nr_throttled")
			time, _ := g.Keyed("cpu.stat", stopped)
			q = Quota{cpus, g.Path(file), uint64(max(periods, 0)), uint64(max(time, 0)) * unit}
		}
	}
	return q
}
