//go:build !linux

package hugepages

import (
	"fmt"
	"runtime"
)

// mapArena serves normal pages from the Go heap: enough for an embedder over kernel sockets.
func mapArena(cfg Config, page PageSize, size int64) (*Arena, error) {
	if page != Normal || cfg.Memfd || cfg.GuardPages {
		return nil, fmt.Errorf("hugepages: pages of %v, memfd and guard pages need Linux, this is %s",
			page, runtime.GOOS)
	}
	return Heap(int(size)), nil
}

func addressLimit() string { return "" }
func unmap([]byte) error   { return nil }
func closeFD(int) error    { return nil }
