package port

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/pmd"
)

// Driver opens devices of one kind.
type Driver struct {
	Name    string
	MTUMax  int // 0: IPv4's
	RoomMin int // octets for a frame that the device wants of a packet buffer, whatever the MTU
	// Sockets: there is no device, and connections are the kernel's. Nothing else is looked at.
	Sockets bool
	// Interrupts: its queues wake a Poller that sleeps (pmd.Interrupter), so that
	// stack.IdleInterrupt is possible, on any machine.
	Interrupts bool
	// Check, if set, refuses what can be refused before any memory is mapped or any device made.
	Check func(*Config) error
	// Option, if set, judges one of Config.Options; a driver without it has none.
	Option func(name, value string) error
	// Claims, if set, are the names of what only one process of a network namespace may have.
	Claims func(*Config) []string
	// Open opens the device. Packet buffers will lie in the arena.
	Open func(*Config, *hugepages.Arena) (pmd.Port, error)
	// Lends, if set, says that packet memory is shared with another process: it lies in an arena of
	// its own then, backed by a memfd.
	Lends func(*Config) bool
	// QuickDAD, if set, says that the other end answers at once: this host's kernel, or a process.
	QuickDAD func(*Config) bool
	// Node, if set, is the NUMA node of the device, or hugepages.AnyNode.
	Node func(*Config) int
}

func (d *Driver) lends(c *Config) bool { return d.Lends != nil && d.Lends(c) }

// Drivers are those that a program has.
type Drivers []Driver

// With are these and more; one of a name that is there takes its place.
func (ds Drivers) With(more ...Driver) Drivers {
	all := slices.Clone(ds)
	for _, d := range more {
		if i := slices.IndexFunc(all, func(e Driver) bool { return e.Name == d.Name }); i >= 0 {
			all[i] = d
		} else {
			all = append(all, d)
		}
	}
	return all
}

// Names of all, in their order.
func (ds Drivers) Names() (names []string) {
	for _, d := range ds {
		names = append(names, d.Name)
	}
	return names
}

// ByName finds one.
func (ds Drivers) ByName(name string) (Driver, error) {
	for _, d := range ds {
		if d.Name == name {
			return d, nil
		}
	}
	names := ds.Names()
	last := len(names) - 1
	return Driver{}, fmt.Errorf("want %s or %s", strings.Join(names[:last], ", "), names[last])
}

// All are Builtin and those that the program has added with pmd.Register.
func All() Drivers {
	all := Builtin()
	for _, d := range pmd.Registered() {
		all = all.With(
			Driver{Name: d.Name, Option: d.Option,
				Open: func(c *Config, arena *hugepages.Arena) (pmd.Port, error) {
					return d.Open(pmd.DriverConfig{
						Device: c.Device, Args: c.EAL, MTU: c.MTUOr(), Queues: c.QueueCount(), MAC: c.MAC,
						NoOffload: c.NoOffload, Options: c.Options, Arena: arena,
					})
				}})
	}
	return all
}

// Of is a driver of one port that is open already, as an end of a cable in memory is.
func Of(name string, mtuMax int, port pmd.Port) Driver {
	return Driver{Name: name, MTUMax: mtuMax, Open: func(*Config, *hugepages.Arena) (pmd.Port, error) {
		return port, nil
	}}
}
