package dpdk

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/pmd"
)

const (
	mtuDefault  = 1500
	descDefault = 1024
	descMax     = 32768
	queuesMax   = 64
	ringMax     = 1 << 20

	ringQueuesMax = 16 // RTE_PMD_RING_MAX_RX_RINGS
)

// Config says which device a Port is and how it is set up. Exactly one of Vdev and PCI is given.
type Config struct {
	// EALArgs go to rte_eal_init before the defaults of Init, if no earlier Open or Init has
	// started the EAL.
	EALArgs []string
	// Vdev is a virtual device with its arguments, as after --vdev=: "net_tap0,iface=rnic0". One
	// that EALArgs or RingPair made is found by its name.
	Vdev string
	// PCI is a NIC's address with device arguments, as after -a: "0000:01:00.0".
	PCI string
	// Arena is where the Pools of all queues lie. It must outlive the Port.
	Arena *hugepages.Arena
	// RxBufs is how many Bufs of its Pool a queue reserves to receive into; 0: four times RxDesc,
	// but at most half of the Pool.
	RxBufs int
	// RxDesc and TxDesc are descriptors per queue; 0: what the driver prefers, else 1024.
	RxDesc, TxDesc int
	// MTU is the largest IP packet in octets; 0: 1500.
	MTU int
	// Queues is how many queue pairs; 0: 1.
	Queues int
	// VLAN, 1 to 4094, is the 802.1Q tag that the device puts into every frame sent and takes off
	// those received; frames of others are dropped and counted. Users of the port see none. Not
	// every device can: Caps.VLAN says. 0: frames pass as they are.
	VLAN uint16
	// MAC is the address that the device is given; zero: it keeps its own.
	MAC [6]byte
	// FlowControl has the device send pause frames when it is full (tx), heed those that come (rx),
	// both (full), or neither (none); empty: as the driver has it.
	FlowControl string
	// Interrupts has each queue wake a Poller that sleeps (Queue.Arm). A driver without them refuses
	// the queue.
	Interrupts bool
	// Promiscuous asks for frames to other addresses too.
	Promiscuous bool
	// NoOffload leaves checksums, segmentation and VLAN tags to software.
	NoOffload bool

	rxRoom int // octets of a Buf that the device may fill; tests have frames come in chains so
}

// QueueStats is pmd.Counters and what only this device counts.
type QueueStats struct {
	pmd.Counters
	Runs    uint64 // sent frames for the device to cut that were made of several segments
	TagsPut uint64 // received without the VLAN tag, which the device took off unasked; put back
	Copied  uint64 // received in a foreign mbuf or in a chain, copied into a Buf
	// copied before sending: the slot lies across pages that are no neighbours for the device, or
	// the driver cuts frames in software
	Bounced uint64
}

// Link is the state of a port's link.
type Link struct {
	Up         bool
	FullDuplex bool
	Mbps       int // 0: unknown
}

func (l Link) String() string {
	switch {
	case !l.Up:
		return "down"
	case l.Mbps == 0:
		return "up"
	case !l.FullDuplex:
		return fmt.Sprintf("up, %d Mbit/s, half duplex", l.Mbps)
	}
	return fmt.Sprintf("up, %d Mbit/s", l.Mbps)
}

// XStat is one of the driver's own statistics, under the name that it has there.
type XStat struct {
	Name  string
	Value uint64
}

// ErrGone is what Port.Lost returns once the device has gone.
var ErrGone = errors.New("dpdk: the device is gone")

// flowControls are the modes of Config.FlowControl, at the numbers of enum rte_eth_fc_mode.
var flowControls = []string{"none", "rx", "tx", "full"}

// NUMANode is the node that the NIC of a PCI address is attached to, -1 if it has none or is not
// known: where its packet memory is to lie.
func NUMANode(pci string) int {
	name, _, _ := strings.Cut(pci, ",")
	return numaNode(os.DirFS("/sys/bus/pci/devices"), name)
}

func numaNode(devices fs.FS, name string) int {
	text, err := fs.ReadFile(devices, name+"/numa_node")
	if err != nil {
		return hugepages.AnyNode
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil || n < 0 {
		return hugepages.AnyNode
	}
	return n
}

// PortStats is what the device itself counts, for all queues.
type PortStats struct {
	Missed   uint64 // dropped by the device: no descriptor was free
	NoMbuf   uint64 // the driver found the receive mempool empty
	RxErrors uint64
	TxErrors uint64
}

// withDefaults checks c and fills in what was left at 0, except for what depends on the device.
func (c Config) withDefaults() (Config, error) {
	switch {
	case c.Vdev == "" && c.PCI == "":
		return c, fmt.Errorf("dpdk: no device: give Vdev (such as net_tap0,iface=rnic0) or PCI (such " +
			"as 0000:01:00.0)")
	case c.Vdev != "" && c.PCI != "":
		return c, fmt.Errorf("dpdk: both Vdev %q and PCI %q: give one of them", c.Vdev, c.PCI)
	case c.Arena == nil:
		return c, fmt.Errorf("dpdk: %s: no Arena: the device must be told which memory it may reach",
			c.device())
	case len(c.Arena.Bytes()) == 0:
		return c, fmt.Errorf("dpdk: %s: the Arena is closed or empty", c.device())
	}
	if c.MAC[0]&1 != 0 {
		return c, fmt.Errorf("dpdk: %s: MAC %x is not the address of one station", c.device(), c.MAC)
	}
	if c.FlowControl != "" && !slices.Contains(flowControls, c.FlowControl) {
		return c, fmt.Errorf("dpdk: %s: FlowControl %q: want %s", c.device(), c.FlowControl,
			strings.Join(flowControls, ", "))
	}
	if c.MTU == 0 {
		c.MTU = mtuDefault
	}
	if c.Queues == 0 {
		c.Queues = 1
	}
	for _, f := range []struct {
		name            string
		value, min, max int
	}{
		{"MTU", c.MTU, 68, 65535},
		{"Queues", c.Queues, 1, queuesMax},
		{"VLAN", int(c.VLAN), 0, 4094},
		{"RxBufs", c.RxBufs, 0, 1 << 24},
		{"RxDesc", c.RxDesc, 0, descMax},
		{"TxDesc", c.TxDesc, 0, descMax},
	} {
		if f.value < f.min || f.value > f.max {
			return c, fmt.Errorf("dpdk: %s: %s is %d, must be in [%d, %d]", c.device(), f.name, f.value,
				f.min, f.max)
		}
	}
	return c, nil
}

// device returns the device's name, without its arguments.
func (c Config) device() string {
	name, _, _ := strings.Cut(c.Vdev+c.PCI, ",")
	return name
}

// deviceArgs returns what follows the device's name.
func (c Config) deviceArgs() string {
	_, args, _ := strings.Cut(c.Vdev+c.PCI, ",")
	return args
}
