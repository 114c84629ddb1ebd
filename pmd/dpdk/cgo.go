//go:build dpdk

package dpdk

// The EAL's drivers are plugins it loads from its own directory; only net_ring is called by name. A
// distribution's libdpdk.pc says -march=corei7 or newer, -include rte_config.h and -Wl,--as-needed,
// all of which cgo accepts.

/*
#cgo pkg-config: libdpdk
#cgo CFLAGS: -O2 -Wall -Wextra -DALLOW_EXPERIMENTAL_API
#cgo LDFLAGS: -lrte_net_ring
#include "shim.h"

#cgo noescape rnic_rx
#cgo nocallback rnic_rx
#cgo noescape rnic_tx
#cgo nocallback rnic_tx
*/
import "C"

import (
	"fmt"

	"github.com/rnicd/rnicd/mem"
)

// Built says whether this program can open DPDK devices.
const Built = true

// burstMax is the longest burst of one call into C.
const burstMax = C.RNIC_BURST

// mem.DescFlags cross the seam as they are: an index other than 0 does not compile.
var (
	_ = [1]struct{}{}[C.RNIC_RX_CHECKSUM_GOOD-int(mem.RxChecksumGood)]
	_ = [1]struct{}{}[C.RNIC_RX_CHECKSUM_BAD-int(mem.RxChecksumBad)]
	_ = [1]struct{}{}[C.RNIC_TX_CHECKSUM-int(mem.TxChecksum)]
	_ = [1]struct{}{}[C.RNIC_TX_SEGMENT-int(mem.TxSegment)]
)

// failed names the operation that gave a negated errno, in DPDK's words for it.
func failed(device, step string, rc C.int) error {
	return fmt.Errorf("dpdk: %s: %s: %w", device, step, errnoOf(rc))
}

// Errno is a failure of DPDK's: an errno, or one of its own numbers beyond.
type Errno int

func (e Errno) Error() string { return C.GoString(C.rnic_strerror(C.int(e))) }

func errnoOf(rc C.int) Errno {
	if rc < 0 {
		rc = -rc
	}
	return Errno(rc)
}
