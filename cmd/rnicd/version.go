package main

import (
	"fmt"
	"runtime"

	"github.com/rnicd/rnicd/pmd/dpdk"
)

// version is what the Makefile's linker flag says: git describe of the source. A build without it is nobody's release.
var version = "unknown"

// versionText is the answer to --version: what a report of a bug should begin with.
func versionText() string {
	drivers := "tap"
	if dpdk.Built {
		drivers += ", dpdk"
	}
	return fmt.Sprintf("%s (%s, %s/%s, drivers: %s)", version, runtime.Version(), runtime.GOOS, runtime.GOARCH, drivers)
}
