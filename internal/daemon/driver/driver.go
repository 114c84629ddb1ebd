// Package driver is the registry of poll-mode drivers that a program adds to the daemon's. A driver that
// this module cannot depend on registers itself, and --pmd takes its name. Call Register from an init
// function, before the command line is read.
package driver

import (
	"fmt"
	"slices"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/pmd"
)

// Config is what the command line says about the device.
type Config struct {
	Device    string   // --dev
	Args      []string // --eal, word by word
	MTU       int
	Queues    int
	MAC       [6]byte // --mac; zero: the device's own
	NoOffload bool
	Options   map[string]string // [port.options], each of which Option has taken
	// Arena is where the Pools of all queues will lie. It outlives the Port.
	Arena *hugepages.Arena
}

// Driver opens the devices of one kind.
type Driver struct {
	Name string // as --pmd takes it
	Open func(Config) (pmd.Port, error)
	// Option judges one of [port.options]: unknown, or not to be had with this value. nil: the driver
	// has none.
	Option func(name, value string) error
}

// Reserved are the names of the daemon's own drivers, and of the one that is none.
var Reserved = []string{"tap", "dpdk", "memif", "kernel"}

var drivers = map[string]Driver{}

// Register adds d. A name that is reserved or taken, or a driver that opens nothing, is the
// programmer's error.
func Register(d Driver) {
	_, taken := drivers[d.Name]
	if d.Name == "" || d.Open == nil || taken || slices.Contains(Reserved, d.Name) {
		panic(fmt.Sprintf("driver: Register of %q: want a name of its own, and Open", d.Name))
	}
	drivers[d.Name] = d
}

// ByName finds a driver that was registered.
func ByName(name string) (d Driver, ok bool) {
	d, ok = drivers[name]
	return d, ok
}

// Names are those that were registered, in order.
func Names() (names []string) {
	for name := range drivers {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
