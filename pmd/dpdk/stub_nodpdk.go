//go:build !dpdk

package dpdk

import (
	"errors"

	"github.com/rnicd/rnicd/pmd"
)

// ErrNotBuilt is what everything returns in a program built without the tag dpdk.
var ErrNotBuilt = errors.New("dpdk: built without DPDK; rebuild with -tags dpdk after apt-get " +
	"install libdpdk-dev")

// Built says whether this program can open DPDK devices.
const Built = false

// Init returns ErrNotBuilt.
func Init([]string) error { return ErrNotBuilt }

// Open returns ErrNotBuilt.
func Open(Config) (pmd.Port, error) { return nil, ErrNotBuilt }

// RingPair returns ErrNotBuilt.
func RingPair(name string, entries int) (a, b string, err error) { return "", "", ErrNotBuilt }
