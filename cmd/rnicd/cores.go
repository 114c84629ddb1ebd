package main

import (
	"fmt"

	"github.com/rnicd/rnicd/internal/port"
)

// parseCores reads the flag.
func (o *nicOptions) parseCores() ([]int, error) {
	cores, err := port.ParseCores(o.cores)
	if err != nil {
		return nil, fmt.Errorf("--cores %q: %w", o.cores, err)
	}
	return cores, nil
}

// checkCores refuses a list that does not go with the other flags, and without --queues takes a
// queue for each core.
func (o *nicOptions) checkCores() error {
	if o.cores == "" {
		return nil
	}
	cores, err := o.parseCores()
	switch {
	case err != nil:
		return err
	case len(o.given("core")) > 0:
		return fmt.Errorf("--core and --cores: give only one")
	case len(cores) > queuesMax:
		return fmt.Errorf("--cores %s: %d CPUs, and a device has at most %d queues", o.cores,
			len(cores), queuesMax)
	case len(o.given("queues")) == 0:
		o.queues = len(cores)
	case o.queues != len(cores):
		return fmt.Errorf("--cores %s: %d CPUs for --queues %d: want one for each", o.cores,
			len(cores), o.queues)
	}
	return nil
}

// coreOf is the CPU for the Poller on queue i, or coreNone.
func (o *nicOptions) coreOf(i int) (int, error) {
	switch {
	case o.cores != "":
		cores, err := o.parseCores()
		if err != nil {
			return coreNone, err
		}
		return cores[i], nil
	case o.core != coreNone:
		return o.core + i, nil
	}
	return coreNone, nil
}
