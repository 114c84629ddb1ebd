//go:build dpdk

package dpdk

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
)

// xdpQueues is a port of several queues on one interface: a device of net_af_xdp for each. Asked
// for several queues the driver wants an interface with "combined channels", which a veth has
// not, and when it closes it looks for the second queue in memory that it has freed with the
// first.
type xdpQueues struct {
	*Port // of the first queue, which answers for the interface
	ports []*Port
}

// wantsXDPQueues says whether cfg is to be opened so; one that says its queue_count itself is not.
func wantsXDPQueues(cfg *Config) bool {
	return cfg.Queues > 1 && strings.HasPrefix(cfg.Vdev, afXDP) &&
		!strings.Contains(cfg.Vdev, "queue_count=")
}

func openXDPQueues(cfg Config) (*xdpQueues, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	var args []string
	first := 0
	for arg := range strings.SplitSeq(cfg.deviceArgs(), ",") {
		if value, found := strings.CutPrefix(arg, "start_queue="); found {
			if first, err = strconv.Atoi(value); err != nil {
				return nil, fmt.Errorf("dpdk: %s: start_queue=%s is no number", cfg.device(), value)
			}
			continue
		}
		args = append(args, arg)
	}
	x := &xdpQueues{}
	for i := range cfg.Queues {
		one := cfg
		one.Queues = 1
		name := cfg.device()
		if i > 0 {
			name += "_queue" + strconv.Itoa(i)
		}
		one.Vdev = fmt.Sprintf("%s,%s,start_queue=%d", name, strings.Join(args, ","), first+i)
		p, err := open(one)
		if err != nil {
			return nil, errors.Join(err, x.Close())
		}
		x.ports = append(x.ports, p)
		x.Port = x.ports[0]
	}
	return x, nil
}

// Caps implements pmd.Port.
func (x *xdpQueues) Caps() pmd.Caps {
	c := x.Port.Caps()
	c.Queues = len(x.ports)
	return c
}

// Open implements pmd.Port.
func (x *xdpQueues) Open(i int, pool *mem.Pool) (pmd.Queue, error) {
	if i < 0 || i >= len(x.ports) {
		return nil, fmt.Errorf("dpdk: %s has %d queues, there is no queue %d", x.Name(), len(x.ports), i)
	}
	return x.ports[i].Open(0, pool)
}

// Close implements pmd.Port.
func (x *xdpQueues) Close() error {
	var errs []error
	for _, p := range slices.Backward(x.ports) {
		errs = append(errs, p.Close())
	}
	return errors.Join(errs...)
}

// Stats is the sum of all queues'.
func (x *xdpQueues) Stats() (sum PortStats) {
	for _, p := range x.ports {
		s := p.Stats()
		sum.Missed += s.Missed
		sum.NoMbuf += s.NoMbuf
		sum.RxErrors += s.RxErrors
		sum.TxErrors += s.TxErrors
	}
	return sum
}

// XStats are the driver's, with the number of the queue before those of all but the first.
func (x *xdpQueues) XStats() (all []XStat, err error) {
	for i, p := range x.ports {
		stats, err := p.XStats()
		if err != nil {
			return nil, err
		}
		for _, s := range stats {
			if i > 0 {
				s.Name = fmt.Sprintf("queue%d_%s", i, s.Name)
			}
			all = append(all, s)
		}
	}
	return all, nil
}

// Stuck is as Port.Stuck, over all queues.
func (x *xdpQueues) Stuck(now time.Time, atLeast time.Duration) (queues []int) {
	for i, p := range x.ports {
		if len(p.Stuck(now, atLeast)) > 0 {
			queues = append(queues, i)
		}
	}
	return queues
}
