// Command mutants changes one line of a package at a time, as a recorded list says, and runs the
// package's tests on it: `make mutants`. A mutant that survives is a change that no test notices.
// Nothing is written to the tree; the compiler is given each changed file as an overlay.
//
// One row of tab-separated values is printed per mutant, then, per package, how many were killed,
// survived, do not compile, and were not found. It takes seconds to minutes for each.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"
)

// memoryMax bounds the memory of each process that a mutant's tests start, since a mutant may
// allocate without end.
const memoryMax = 8 << 30

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	limit := &unix.Rlimit{Cur: memoryMax, Max: memoryMax}
	err := unix.Setrlimit(unix.RLIMIT_DATA, limit)
	if err == nil {
		err = run(ctx, os.Stdout, ".", os.Args[1:])
	}
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(1)
	}
}

// run applies the mutants that args select in the tree below root.
func run(ctx context.Context, w io.Writer, root string, args []string) error {
	flags := flag.NewFlagSet("mutants", flag.ContinueOnError)
	list := flags.String("list", "docs/results/mutants.tsv", "the `file` that lists them")
	packages := flags.String("package", "...", "only mutants that are in these `packages` now: "+
		"stack,rnic/...")
	numbers := flags.String("n", "", "only these `numbers`: 1,5-10")
	tests := flags.String("tests", "", "run the tests of these `packages` instead of the mutant's "+
		"own: rnic,rnic/...")
	locate := flags.Bool("locate", false, "only say where each mutant is now")
	if err := flags.Parse(args); err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return fmt.Errorf("unknown argument %q; -help lists the flags", flags.Arg(0))
	}
	wanted, err := parseNumbers(*numbers)
	if err != nil {
		return err
	}
	all, err := readMutants(*list)
	if err != nil {
		return err
	}
	src, err := readTree(root)
	if err != nil {
		return err
	}
	r, err := newRunner(root, *tests)
	if err != nil {
		return err
	}
	defer r.close()

	sum := summary{}
	fmt.Fprintln(w, "n\tverdict\tseconds\tplace\tfunction\tmutation\tby")
	for _, m := range all {
		at, found := src.find(m)
		pkg := path.Dir(m.file)
		if found {
			pkg = path.Dir(at.file)
		}
		if wanted != nil && !wanted[m.n] || !matches(*packages, pkg) {
			continue
		}
		o, place := outcome{verdict: notFound}, m.file
		start := time.Now()
		if found {
			place, o.verdict = fmt.Sprintf("%s:%d", at.file, at.line), located
		}
		if found && !*locate {
			if o, err = r.try(ctx, m, at); err != nil {
				return fmt.Errorf("mutant %d: %w", m.n, err)
			}
		}
		fmt.Fprintf(w, "%d\t%s\t%.0f\t%s\t%s\t%s\t%s\n", m.n, o.verdict,
			time.Since(start).Seconds(), place, m.function, m.mutation, o.by)
		sum.add(pkg, o.verdict)
	}
	return sum.print(w)
}

// parseNumbers returns the numbers of a list such as 1,5-10; nil for an empty one.
func parseNumbers(list string) (map[int]bool, error) {
	if list == "" {
		return nil, nil
	}
	wanted := map[int]bool{}
	for part := range strings.SplitSeq(list, ",") {
		first, last, isRange := strings.Cut(part, "-")
		if !isRange {
			last = first
		}
		from, err := strconv.Atoi(first)
		to, err2 := strconv.Atoi(last)
		if err != nil || err2 != nil || to < from || to > 1<<20 {
			return nil, fmt.Errorf("-n: %q is neither a number nor a range such as 5-10", part)
		}
		for n := from; n <= to; n++ {
			wanted[n] = true
		}
	}
	return wanted, nil
}

// matches says whether one of the patterns, separated by commas, is pkg, or ends in ... and stands
// for pkg as it does for the go command.
func matches(patterns, pkg string) bool {
	for p := range strings.SplitSeq(patterns, ",") {
		p = strings.TrimPrefix(p, "./")
		if folder, below := strings.CutSuffix(p, "..."); below {
			if folder == "" || strings.HasPrefix(pkg+"/", folder) {
				return true
			}
		} else if strings.TrimSuffix(p, "/") == pkg {
			return true
		}
	}
	return false
}

// summary counts verdicts by package, in the order of their first mutants.
type summary struct {
	packages []string
	counts   map[string]map[verdict]int
}

func (s *summary) add(pkg string, v verdict) {
	if s.counts == nil {
		s.counts = map[string]map[verdict]int{}
	}
	if s.counts[pkg] == nil {
		s.counts[pkg] = map[verdict]int{}
		s.packages = append(s.packages, pkg)
	}
	s.counts[pkg][v]++
}

// print writes a row per package and their sums. Verdicts that nothing has have no column.
func (s *summary) print(w io.Writer) error {
	sums := map[verdict]int{}
	for _, of := range s.counts {
		for v, n := range of {
			sums[v] += n
		}
	}
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	row := func(name string, cell func(v verdict) any) {
		fmt.Fprint(t, name)
		for _, v := range verdicts {
			if sums[v] > 0 {
				fmt.Fprint(t, "\t", cell(v))
			}
		}
		fmt.Fprintln(t)
	}
	fmt.Fprintln(w)
	row("package", func(v verdict) any { return v })
	for _, pkg := range s.packages {
		row(pkg, func(v verdict) any { return s.counts[pkg][v] })
	}
	row("all", func(v verdict) any { return sums[v] })
	return t.Flush()
}
