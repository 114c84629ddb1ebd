package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"
)

// verdict is what became of a mutant.
type verdict string

const (
	killed     verdict = "killed" // a test failed
	timedOut   verdict = "hung"   // the tests did not end, which counts as killed
	survived   verdict = "survived"
	notCompile verdict = "does not compile"
	notFound   verdict = "not found" // its line is gone, or ambiguous
	located    verdict = "located"   // with -locate
)

// verdicts are all of them, in the order of the summary.
var verdicts = []verdict{killed, timedOut, survived, notCompile, notFound, located}

// outcome is a verdict and the first test that failed.
type outcome struct {
	verdict verdict
	by      string
}

// runner runs tests of the tree below root.
type runner struct {
	root, dir string // dir has the overlays
	tests     []string
	limits    map[string]time.Duration // by the packages tested, joined
}

// newRunner returns a runner of the tests of tests, packages separated by commas, or of each
// mutant's own. Close it.
func newRunner(root, tests string) (*runner, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	r := &runner{root: root, limits: map[string]time.Duration{}}
	for p := range strings.SplitSeq(tests, ",") {
		if p != "" {
			r.tests = append(r.tests, "./"+strings.TrimPrefix(p, "./"))
		}
	}
	r.dir, err = os.MkdirTemp("", "mutants-")
	return r, err
}

func (r *runner) close() { _ = os.RemoveAll(r.dir) }

// try runs the tests on m at p. The first time it runs them without the mutant, too: they have to
// pass, and a mutant's tests may then take four times as long, and a minute.
func (r *runner) try(ctx context.Context, m mutant, p place) (outcome, error) {
	pkg := "./" + path.Dir(p.file)
	tests := r.tests
	if tests == nil {
		tests = []string{pkg}
	}
	key := strings.Join(tests, " ")
	if _, ok := r.limits[key]; !ok {
		start := time.Now()
		if o, err := r.test(ctx, tests, "", 30*time.Minute); err != nil {
			return outcome{}, err
		} else if o.verdict != survived {
			return outcome{}, fmt.Errorf("the tests of %s fail without a mutant: %s %s", key,
				o.verdict, o.by)
		}
		r.limits[key] = 4*time.Since(start) + time.Minute
	}
	overlay, err := r.overlay(m, p)
	if err != nil {
		return outcome{}, err
	}
	built := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", os.DevNull, pkg)
	built.Dir = r.root
	if err := built.Run(); err != nil {
		if exit := (*exec.ExitError)(nil); !errors.As(err, &exit) || ctx.Err() != nil {
			return outcome{}, errors.Join(err, ctx.Err())
		}
		return outcome{verdict: notCompile}, nil
	}
	return r.test(ctx, tests, overlay, r.limits[key])
}

// overlay writes the changed file and an overlay that names it, and returns the overlay's name.
func (r *runner) overlay(m mutant, p place) (string, error) {
	original := filepath.Join(r.root, p.file)
	text, err := os.ReadFile(original)
	if err != nil {
		return "", err
	}
	changed, err := m.apply(string(text), p)
	if err != nil {
		return "", err
	}
	file, overlay := filepath.Join(r.dir, "mutant.go"), filepath.Join(r.dir, "overlay.json")
	replace, err := json.Marshal(map[string]any{"Replace": map[string]string{original: file}})
	if err != nil {
		return "", err
	}
	return overlay, errors.Join(os.WriteFile(file, []byte(changed), 0o600),
		os.WriteFile(overlay, replace, 0o600))
}

var (
	failedTest    = regexp.MustCompile(`(?m)^(?:\s*--- FAIL:|\s+running tests:\n)\s+(\S+)`)
	failedPackage = regexp.MustCompile(`(?m)^FAIL\s+(\S+)\s+[\d.]+s$`)
)

// test runs the short tests of packages, for limit at most. An error is one of the runner or of
// the go command, not of a test.
func (r *runner) test(ctx context.Context, packages []string, overlay string,
	limit time.Duration) (outcome, error) {
	args := []string{"test", "-short", "-vet=off", "-count=1", "-failfast",
		"-timeout", limit.String()}
	if overlay != "" {
		args = append(args, "-overlay", overlay)
	}
	// A test binary that ignores -timeout is ended by the go command a minute later.
	ctx, cancel := context.WithTimeout(ctx, limit+10*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "go", slices.Concat(args, packages)...)
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = r.root, &out, &out
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	end := func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) }
	cmd.Cancel, cmd.WaitDelay = end, 10*time.Second
	err := cmd.Run()
	if cmd.Process != nil {
		_ = end() // what a mutant's tests left running
	}
	by := ""
	if test := failedTest.FindStringSubmatch(out.String()); test != nil {
		by = test[1]
	}
	switch failed := failedPackage.FindStringSubmatch(out.String()); {
	case ctx.Err() != nil:
		return outcome{}, ctx.Err()
	case err == nil:
		return outcome{verdict: survived}, nil
	case failed == nil:
		return outcome{}, fmt.Errorf("go test: %w:\n%s", err, out.String())
	case strings.Contains(out.String(), "panic: test timed out after "):
		return outcome{timedOut, cmp.Or(by, failed[1])}, nil
	default:
		return outcome{killed, cmp.Or(by, failed[1])}, nil
	}
}
