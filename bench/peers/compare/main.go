// Command compare measures the goodput of one TCP stream between the Linux kernel and a stack on a
// TAP device, in both directions: our stack, gVisor's netstack, and for context the kernel with
// itself over a veth pair. All run in turn, round by round, on the same machine in one run, because
// figures of different runs do not compare. scripts/bench-peers.sh builds what it needs and starts
// it.
//
// It needs root: each transfer gets a network namespace of its own, which goes with it.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// plan is what is to be measured.
type plan struct {
	bin     string // directory of the ends' binaries
	rounds  int
	length  time.Duration
	mtus    []int
	ways    []way
	peers   []peer
	verbose bool
	json    bool
}

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM,
		syscall.SIGHUP)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string) error {
	p, err := parse(args)
	if err != nil {
		return err
	}
	if os.Geteuid() != 0 {
		return errors.New("needs root: makes network namespaces and TAP devices")
	}
	t := newTable()
	failed := 0
	for round := range p.rounds {
		for _, mtu := range p.mtus {
			for _, w := range p.ways {
				for i := range p.peers {
					if round%2 == 1 { // the one that goes first one time goes last the next
						i = len(p.peers) - 1 - i
					}
					c := cell{mtu, w, p.peers[i].name}
					s, err := measureOnce(ctx, p, c, p.peers[i])
					if ctx.Err() != nil {
						return errors.New("interrupted")
					}
					if err != nil {
						failed++
						fmt.Fprintf(os.Stderr, "round %d, %v: %v\n", round+1, c, err)
						continue
					}
					t.add(c, s)
					if p.verbose {
						fmt.Fprintf(os.Stderr, "round %d, %v: %.2f Gbit/s\n", round+1, c, s.gbps)
					}
				}
			}
		}
	}
	if p.json {
		return errors.Join(t.printJSON(os.Stdout, p), failures(failed))
	}
	fmt.Printf("%s, %d CPUs, %s: medians of %d rounds of %v, range in brackets; CPU is that of the "+
		"stack's process.\n\n",
		kernelRelease(), runtime.NumCPU(), runtime.Version(), p.rounds, p.length)
	t.print(os.Stdout, p)
	return failures(failed)
}

// failures is the error of so many.
func failures(n int) error {
	if n == 0 {
		return nil
	}
	return fmt.Errorf("%d transfers failed", n)
}

// parse reads the command line.
func parse(args []string) (*plan, error) {
	f := flag.NewFlagSet("compare", flag.ContinueOnError)
	p := &plan{}
	f.StringVar(&p.bin, "bin", "build/peers", "directory of the ends' binaries")
	f.IntVar(&p.rounds, "rounds", 5, "rounds")
	f.DurationVar(&p.length, "for", 3*time.Second, "length of one transfer")
	f.BoolVar(&p.json, "json", false, "print every transfer's goodput as JSON instead of a table")
	f.BoolVar(&p.verbose, "v", false, "say each result as it comes")
	mtus := f.String("mtu", "1500,9000", "MTUs")
	ways := f.String("ways", "in,out", "in: kernel to stack, out: stack to kernel")
	peers := f.String("peers", "ours,ours-stream,gvisor,gvisor-fdbased,kernel",
		"stacks; one may be given flags, as gvisor:--gro:--first=512, or be the path of another build")
	if err := f.Parse(args); err != nil {
		return nil, err
	}
	if p.rounds < 1 || p.length < 100*time.Millisecond || p.length > time.Minute {
		return nil, fmt.Errorf("-rounds %d -for %v: want at least one round of 100ms to 1m",
			p.rounds, p.length)
	}
	for _, s := range strings.Split(*mtus, ",") {
		n, err := strconv.Atoi(s)
		if err != nil || n < 576 || n > 65521 {
			return nil, fmt.Errorf("-mtu %q: want numbers from 576 to 65521", s)
		}
		p.mtus = append(p.mtus, n)
	}
	for _, s := range strings.Split(*ways, ",") {
		if s != string(in) && s != string(out) {
			return nil, fmt.Errorf("-ways %q: want %s, %s or both", s, in, out)
		}
		p.ways = append(p.ways, way(s))
	}
	for _, s := range strings.Split(*peers, ",") {
		e, err := newPeer(p.bin, s)
		if err != nil {
			return nil, err
		}
		p.peers = append(p.peers, e)
	}
	return p, nil
}

// peer is a stack that is measured.
type peer struct {
	name string
	path string
	args []string
	tap  bool // else the kernel, over a veth
}

// newPeer reads NAME[:FLAG]... or PATH[:FLAG]... .
func newPeer(bin, text string) (peer, error) {
	words := strings.Split(text, ":")
	p := peer{name: text, args: words[1:], tap: true}
	switch {
	case strings.Contains(words[0], "/"): // another build, beside this one
		p.path = words[0]
	case words[0] == "ours":
		p.path = filepath.Join(bin, "ours")
	case words[0] == "ours-stream":
		p.path = filepath.Join(bin, "ours")
		p.args = append([]string{"--stream"}, p.args...)
	case words[0] == "gvisor":
		p.path = filepath.Join(bin, "gvisor")
	case words[0] == "gvisor-fdbased":
		p.path = filepath.Join(bin, "gvisor")
		p.args = append([]string{"--link=fdbased"}, p.args...)
	case words[0] == "kernel":
		p.path = filepath.Join(bin, "kernel")
		p.tap = false
	default:
		return p, fmt.Errorf("-peers %q: want ours, ours-stream, gvisor, gvisor-fdbased, kernel or the "+
			"path of an end", words[0])
	}
	if _, err := os.Stat(p.path); err != nil {
		return p, fmt.Errorf("%s is not there: scripts/bench-peers.sh builds it", p.path)
	}
	return p, nil
}

func kernelRelease() string {
	b, err := os.ReadFile("/proc/sys/kernel/osrelease")
	if err != nil {
		return "Linux"
	}
	return "Linux " + strings.TrimSpace(string(b))
}
