// Package doctor checks what a machine lacks for the daemon, and names the command that fixes it:
// small functions that read /proc and /sys, below another root in tests.
package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/rnicd/rnicd/internal/daemon/config"
	"github.com/rnicd/rnicd/internal/port/portfile"
)

// Verdict on one thing.
type Verdict string

// The verdicts.
const (
	OK   Verdict = "ok"
	Warn Verdict = "warn" // the daemon runs, but slower or less safely
	Lack Verdict = "lack" // the daemon does not run
)

// Finding is the result of a check.
type Finding struct {
	Check   string  `json:"check"`
	Verdict Verdict `json:"verdict"`
	Text    string  `json:"text"`
	Fix     string  `json:"fix,omitempty"` // a command
}

// Machine is what is examined.
type Machine struct {
	Root   string         // the directory of /proc, /sys and /dev
	Config *config.Config // what it is to run; nil: any
}

// checks are all checks, in the order of the output. With a configuration only those are made that
// concern it.
var checks = []struct {
	name     string
	do       func(*Machine) []Finding
	concerns func(*Machine) bool // nil: any configuration
}{
	{"cpu", (*Machine).cpu, nil},
	{"cores", (*Machine).cores, nil},
	{"quota", (*Machine).quota, nil},
	{"isolation", (*Machine).isolation, func(m *Machine) bool { return len(m.wantedCores()) > 0 }},
	{"numa", (*Machine).numa, (*Machine).hasNIC},
	{"hugepages", (*Machine).hugepages, nil},
	{"memory", (*Machine).memory, nil},
	{"memlock", (*Machine).memlock, nil},
	{"tap", (*Machine).tap, (*Machine).hasTAP},
	{"places", (*Machine).places, nil},
	{"permissions", (*Machine).permissions, (*Machine).hasTAP},
	{"iommu", (*Machine).iommu, (*Machine).hasNIC},
	{"vfio", (*Machine).vfio, (*Machine).hasNIC},
	{"driver", (*Machine).driver, (*Machine).hasNIC},
	{"checksums", (*Machine).checksums, (*Machine).hasInterface},
}

// Examine makes all checks.
func (m *Machine) Examine() (all []Finding) {
	for _, c := range checks {
		if m.Config != nil && c.concerns != nil && !c.concerns(m) {
			continue
		}
		for _, f := range c.do(m) {
			f.Check = c.name
			all = append(all, f)
		}
	}
	return all
}

// Write prints findings for people to read.
func Write(w io.Writer, all []Finding) {
	for _, f := range all {
		fmt.Fprintf(w, "%-5s %-12s %s\n", f.Verdict, f.Check, f.Text)
		if f.Fix != "" {
			fmt.Fprintf(w, "%19s%s\n", "", f.Fix)
		}
	}
}

// WriteJSON prints one JSON object a line.
func WriteJSON(w io.Writer, all []Finding) error {
	enc := json.NewEncoder(w)
	for _, f := range all {
		if err := enc.Encode(f); err != nil {
			return err
		}
	}
	return nil
}

func ok(format string, args ...any) []Finding {
	return []Finding{{Verdict: OK, Text: fmt.Sprintf(format, args...)}}
}

func warn(fix, format string, args ...any) []Finding {
	return []Finding{{Verdict: Warn, Text: fmt.Sprintf(format, args...), Fix: fix}}
}

// lack is Lack where it is needed, otherwise Warn.
func lack(needed bool, fix, format string, args ...any) []Finding {
	f := warn(fix, format, args...)
	if needed {
		f[0].Verdict = Lack
	}
	return f
}

// read is the content of a file below Root without space around it; empty: it cannot be read.
func (m *Machine) read(path string) string {
	b, err := os.ReadFile(filepath.Join(m.Root, path))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(b))
}

func (m *Machine) number(path string) (n int64, ok bool) {
	n, err := strconv.ParseInt(m.read(path), 10, 64)
	return n, err == nil
}

// glob are the paths below Root, without it.
func (m *Machine) glob(pattern string) (paths []string) {
	all, _ := filepath.Glob(filepath.Join(m.Root, pattern)) // an error only of a pattern
	for _, p := range all {
		rel, _ := filepath.Rel(m.Root, p)
		paths = append(paths, rel)
	}
	return paths
}

func (m *Machine) exists(path string) bool {
	_, err := os.Stat(filepath.Join(m.Root, path))
	return err == nil
}

// status is a line of /proc/self/status.
func (m *Machine) status(key string) string {
	for line := range strings.Lines(m.read("proc/self/status")) {
		if k, v, found := strings.Cut(line, ":"); found && k == key {
			return strings.TrimSpace(v)
		}
	}
	return ""
}

// has says whether the configuration has such a port; false without one.
func (m *Machine) has(such func(p *portfile.Port) bool) bool {
	return m.Config != nil && slices.ContainsFunc(m.Config.Ports, func(p portfile.Port) bool {
		return such(&p)
	})
}

// hasTAP: of our own driver, or of DPDK's.
func (m *Machine) hasTAP() bool {
	return m.has(func(p *portfile.Port) bool {
		dev := p.Open.Device
		return p.Driver == "tap" || p.Driver == "dpdk" && p.PCI == "" &&
			(!strings.HasPrefix(dev, "net_") || strings.HasPrefix(dev, "net_tap"))
	})
}

func (m *Machine) hasNIC() bool { return len(m.nics()) > 0 }

// hasInterface: net_af_packet or net_af_xdp.
func (m *Machine) hasInterface() bool {
	return m.has(func(p *portfile.Port) bool {
		return p.Driver == "dpdk" && strings.HasPrefix(p.Open.Device, "net_af_")
	})
}

// nics are the PCI addresses in the configuration.
func (m *Machine) nics() (all []string) {
	if m.Config != nil {
		for _, p := range m.Config.Ports {
			if p.PCI != "" {
				all = append(all, p.PCI)
			}
		}
	}
	return all
}

// wantedCores are those in the configuration.
func (m *Machine) wantedCores() (all []int) {
	if m.Config != nil {
		for _, p := range m.Config.Ports {
			all = append(all, p.Open.Cores...)
		}
	}
	slices.Sort(all)
	return slices.Compact(all)
}

// list reads CPUs or nodes as the kernel writes them: 0-3,8.
func list(text string) (all []int) {
	for part := range strings.SplitSeq(text, ",") {
		from, to, isRange := strings.Cut(part, "-")
		if !isRange {
			to = from
		}
		first, err1 := strconv.Atoi(from)
		last, err2 := strconv.Atoi(to)
		if err1 != nil || err2 != nil {
			continue
		}
		for n := first; n <= last; n++ {
			all = append(all, n)
		}
	}
	return all
}

func missing(wanted, have []int) (all []string) {
	for _, n := range wanted {
		if !slices.Contains(have, n) {
			all = append(all, strconv.Itoa(n))
		}
	}
	return all
}
