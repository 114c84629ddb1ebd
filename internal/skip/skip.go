// Package skip skips tests that cannot run on this machine. With RNICD_NO_SKIP=1, which .ci/run
// sets, a skip is a failure, except for the few Exceptions: where everything should run, a skipped
// test would go unnoticed. No test calls testing's own Skip; internal/layers checks that.
//
// It is imported by tests only, of any layer, and so imports nothing of ours.
package skip

import (
	"fmt"
	"os"
	"testing"
)

// Variable is the environment variable that makes Missing fail. Any value except the empty one and
// 0 does.
const Variable = "RNICD_NO_SKIP"

// Exception is a reason for which a test may be skipped even then: what the machine that runs
// everything need not have.
type Exception string

// The Exceptions, each with why it is one.
const (
	// VirtualMachine: test/interop starts one only with -live; .ci/run does that in a step of its
	// own (scripts/interop-quick.sh).
	VirtualMachine Exception = "a virtual machine runs it: make interop"
	// GiBPages: a kernel finds a free page of 1 GiB only while its memory is not in pieces, and
	// some tests want that there is none.
	GiBPages Exception = "pages of 1 GiB are not as the test wants them"
	// Instructions: a processor has the instructions that it has. The other kernels, and what is
	// exported, are tested anyway.
	Instructions Exception = "the processor has not these instructions"
	// HugepagesTaken: tests of other packages, which run at the same time, hold hugepages for a
	// while.
	HugepagesTaken Exception = "others hold the hugepages at the moment"
)

// Missing skips the test, which needs what this machine does not have; where Variable is set it
// fails the test. It does not return. Goroutine of the test.
func Missing(t testing.TB, format string, args ...any) {
	t.Helper()
	why := fmt.Sprintf(format, args...)
	if v := os.Getenv(Variable); v != "" && v != "0" {
		t.Fatalf("%s forbids to skip this test, which cannot run here: %s", Variable, why)
	}
	t.Skip(why)
}

// Hugepages skips a test that did not get its pages of 2 MiB, as err says: as HugepagesTaken where
// the kernel has want of them in all, as Missing otherwise.
func Hugepages(t testing.TB, want int64, err error) {
	t.Helper()
	const pool = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages"
	var total int64
	if text, err := os.ReadFile(pool); err == nil {
		_, _ = fmt.Sscan(string(text), &total) // 0 if it is no number
	}
	if total < want {
		Missing(t, "the kernel has %d pages of 2 MiB in all, %d are wanted: %v", total, want, err)
	}
	Because(t, HugepagesTaken, "%v", err)
}

// Because skips the test for one of the Exceptions, and says more of it. It does not return.
// Goroutine of the test.
func Because(t testing.TB, e Exception, format string, args ...any) {
	t.Helper()
	t.Skipf("%s: %s", e, fmt.Sprintf(format, args...))
}
