package pmd

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/rnicd/rnicd/hugepages"
)

// Driver opens the devices of one kind for the daemon and the commands. A program adds its own with
// Register:
//
//	func main() {
//		pmd.Register(mydriver.Driver)
//		cmd.Main()
//	}
type Driver struct {
	// Name is what --pmd and a port's driver key take.
	Name string
	// Open opens a device. The caller closes the Port.
	Open func(DriverConfig) (Port, error)
	// Option judges one of [port.options]: unknown, or a value that cannot be. nil: the driver has
	// none.
	Option func(name, value string) error
}

// DriverConfig is what flags or a configuration say about the device that a Driver opens.
type DriverConfig struct {
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

// builtin are the names of this module's drivers, and of the one that is none.
var builtin = []string{"tap", "dpdk", "memif", "kernel"}

var drivers = map[string]Driver{}

// Register adds d to the drivers of this program. Call it before the command line is read, from one
// goroutine. It panics if the name is empty or taken, or if Open is nil.
func Register(d Driver) {
	_, taken := drivers[d.Name]
	if d.Name == "" || d.Open == nil || taken || slices.Contains(builtin, d.Name) {
		panic(fmt.Sprintf("pmd: Register of %q: want a name of its own, and Open", d.Name))
	}
	drivers[d.Name] = d
}

// Registered are the drivers that the program has added, ordered by name.
func Registered() (all []Driver) {
	for _, d := range drivers {
		all = append(all, d)
	}
	slices.SortFunc(all, func(a, b Driver) int { return cmp.Compare(a.Name, b.Name) })
	return all
}
