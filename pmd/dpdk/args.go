package dpdk

import (
	"fmt"
	"strconv"
	"strings"
)

// noHugeMiB is what the EAL takes from normal pages for its mempools and rings when there are no
// hugepages. Packet buffers are not in it: they lie in the Arena.
const noHugeMiB = 256

// hugeMin is the least that the EAL takes from hugepages for itself, in octets: with less it does
// not start.
const hugeMin = 16 << 20

// host is what the defaults depend on.
type host struct {
	hugeOctets int64 // of hugepages that this process can still have
	cpus       []int // this process may run on
	pid        int
}

// completeArgs returns EAL arguments: those of the user, then a default for every matter they leave
// open. pci, if not "", is a NIC the EAL must not overlook.
func completeArgs(user []string, pci string, h host) []string {
	args := append([]string{}, user...)
	add := func(arg string, unless ...string) {
		if !hasOption(user, unless...) {
			args = append(args, arg)
		}
	}
	// The EAL wants at least one core for its main thread, which ends after the start. The whole
	// set: the EAL's own helper threads inherit it.
	add("--lcores=0@("+cpuList(h.cpus)+")", "-l", "-c", "--lcores", "-s", "-S")
	add(fmt.Sprintf("--file-prefix=rnicd-%d", h.pid), "--file-prefix")
	add("--no-telemetry", "--telemetry", "--no-telemetry")
	add("--log-level=4", "--log-level") // errors
	memory := []string{"--in-memory", "--no-huge", "--huge-dir", "--legacy-mem", "--no-shconf",
		"--proc-type"}
	switch {
	case h.hugeOctets >= hugeMin || hasOption(user, memory...):
		// Nothing in hugetlbfs and /var/run: nothing to clean up, no permissions there needed.
		add("--in-memory", memory...)
	default:
		// The EAL refuses --in-memory together with --no-huge.
		args = append(args, "--no-huge", "--no-shconf")
		add(fmt.Sprintf("-m%d", noHugeMiB), "-m", "--socket-mem")
	}
	devices := []string{"-a", "--allow", "-b", "--block", "--no-pci"}
	switch {
	case pci != "" && !mentions(user, pci):
		args = append(args, "-a", pci)
	case pci == "" && !hasOption(user, devices...):
		// Else the EAL would take whatever NIC is bound to a user space driver.
		args = append(args, "--no-pci")
		// Left alone, root without devices gets physical addresses, for nothing.
		add("--iova-mode=va", "--iova-mode")
	}
	return args
}

// hasOption says whether args have one of the options: "-l 0", "-l0", "--lcores 0" and "--lcores=0"
// alike.
func hasOption(args []string, options ...string) bool {
	for _, a := range args {
		for _, o := range options {
			if a == o || strings.HasPrefix(a, o+"=") {
				return true
			}
			if len(o) == 2 && strings.HasPrefix(a, o) && !strings.HasPrefix(a, "--") {
				return true
			}
		}
	}
	return false
}

// mentions says whether args already allow the device, which is what follows -a before any comma.
func mentions(args []string, device string) bool {
	name, _, _ := strings.Cut(device, ",")
	for _, a := range args {
		if strings.Contains(a, name) {
			return true
		}
	}
	return false
}

// cpuList writes CPUs as the EAL reads them: 0-3,8.
func cpuList(cpus []int) string {
	var b strings.Builder
	for i := 0; i < len(cpus); {
		j := i
		for j+1 < len(cpus) && cpus[j+1] == cpus[j]+1 {
			j++
		}
		if b.Len() > 0 {
			b.WriteByte(',')
		}
		b.WriteString(strconv.Itoa(cpus[i]))
		if j > i {
			b.WriteString("-" + strconv.Itoa(cpus[j]))
		}
		i = j + 1
	}
	return b.String()
}
