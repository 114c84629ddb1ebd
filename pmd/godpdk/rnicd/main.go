// Command rnicd is the daemon with a port over go-dpdk beside its own drivers.
package main

import (
	"github.com/rnicd/rnicd/cmd"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/godpdk"
)

func main() {
	pmd.Register(godpdk.Driver)
	cmd.Main()
}
