// Command rnicd is the daemon with a port over go-dpdk beside its own drivers.
package main

import (
	"github.com/rnicd/rnicd/internal/daemon/command"
	"github.com/rnicd/rnicd/internal/daemon/driver"
	"github.com/rnicd/rnicd/pmd/godpdk"
)

func main() {
	driver.Register(godpdk.Driver)
	command.Main()
}
