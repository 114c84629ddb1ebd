//go:build dpdk

package dpdk

/*
#include <stdlib.h>
#include "shim.h"
*/
import "C"

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/hugepages"
)

// environment is the process's one EAL. Its lock covers all set-up in this package.
var environment struct {
	sync.Mutex
	tried bool
	args  []string // the user's
	err   error    // why the start failed
}

const ealLogMax = 2048 // octets of the EAL's log in an error

// Init starts the EAL with the given arguments (as on a DPDK program's command line, without the
// program's name), completed by: one lcore that may run on all of this process's CPUs,
// --in-memory, or --no-huge when this process can have too few hugepages, a --file-prefix with
// the process id, no telemetry, errors only in the log, and no PCI scan unless the arguments name
// a NIC. It pins no thread of the caller's.
//
// The EAL starts once per process. A second Init with the same arguments, or none, does nothing;
// after a failure it returns that failure. Open calls Init itself.
func Init(args []string) error {
	environment.Lock()
	defer environment.Unlock()
	return startEAL(args, "")
}

func startEAL(user []string, pci string) error {
	e := &environment
	if e.tried {
		switch {
		case e.err != nil:
			return fmt.Errorf("dpdk: the EAL did not start earlier in this process and cannot be tried "+
				"again; restart the program after this is mended: %w", e.err)
		case len(user) > 0 && !slices.Equal(user, e.args):
			return fmt.Errorf("dpdk: the EAL already runs with arguments %q, not %q: it starts once per "+
				"process; give them to the first Init or Open", e.args, user)
		case pci != "" && C.rnic_eal_has_pci() == 0:
			return fmt.Errorf("dpdk: %s: the EAL was started without PCI; add -a %s to the arguments of "+
				"the first Init or Open", pci, pci)
		}
		return nil
	}
	for _, a := range user {
		if a == "-h" || a == "--help" || a == "-v" || a == "--version" {
			return fmt.Errorf("dpdk: EAL argument %s would end the process; see dpdk-testpmd %s", a, a)
		}
	}
	h, err := thisHost()
	if err != nil {
		return err
	}
	e.tried = true
	e.args = slices.Clone(user)
	args := completeArgs(user, pci, h)
	e.err = runEAL(args)
	return e.err
}

// runEAL calls rte_eal_init. The C strings stay: the EAL points into them.
func runEAL(args []string) error {
	argc := 1 + len(args)
	argv := unsafe.Slice((**C.char)(C.calloc(C.size_t(argc+1), C.size_t(unsafe.Sizeof(uintptr(0))))),
		argc+1)
	argv[0] = C.CString("rnicd")
	for i, a := range args {
		argv[1+i] = C.CString(a)
	}
	log := (*C.char)(C.calloc(1, ealLogMax))
	defer C.free(unsafe.Pointer(log))
	rc := C.rnic_eal_init(C.int(argc), &argv[0], log, ealLogMax)
	if dir := C.GoString(C.rnic_eal_runtime_dir()); dir != "" {
		// The EAL makes it even with --in-memory, and leaves it. One that is in use is not empty.
		_ = os.Remove(dir)
	}
	if rc == 0 {
		return nil
	}
	said := strings.Join(strings.Split(C.GoString(log), "\n"), "; ")
	if said == "" {
		said = "it said nothing; add --log-level=8 to its arguments"
	}
	return fmt.Errorf("dpdk: rte_eal_init %q: %w: %s (%s)", args, errnoOf(rc), said,
		ealAdvice(errnoOf(rc), args))
}

// ealAdvice says what to do about a failed start.
func ealAdvice(e Errno, args []string) string {
	switch syscall.Errno(e) {
	case syscall.EACCES, syscall.EPERM:
		return "run as root, or give access to /dev/hugepages, /dev/vfio and CAP_IPC_LOCK; see " +
			"docs/guides/dpdk.md"
	case syscall.EINVAL:
		return "check the EAL arguments; see docs/guides/dpdk.md"
	case syscall.ENOMEM:
		if hasOption(args, "--no-huge") {
			return fmt.Sprintf("it takes %d MiB of normal pages, unless -m says otherwise: give this "+
				"process more memory, or hugepages", noHugeMiB)
		}
		return "rnicd doctor says how many hugepages this process can have, and what bounds them; " +
			"--no-huge does without"
	case syscall.ENODEV:
		return "bind the NIC to vfio-pci: dpdk-devbind.py --bind=vfio-pci <address>; see " +
			"docs/guides/dpdk.md"
	}
	return "see docs/guides/dpdk.md"
}

func thisHost() (host, error) {
	h := host{pid: os.Getpid()}
	var set unix.CPUSet
	if err := unix.SchedGetaffinity(0, &set); err != nil {
		return h, fmt.Errorf("dpdk: sched_getaffinity: %w", err)
	}
	for cpu := range len(set) * 64 {
		if set.IsSet(cpu) {
			h.cpus = append(h.cpus, cpu)
		}
	}
	for _, page := range []hugepages.PageSize{hugepages.Page2MiB, hugepages.Page1GiB} {
		h.hugeOctets += hugepages.RoomAt("/", page, hugepages.AnyNode).Pages() * int64(page)
	}
	return h, nil
}
