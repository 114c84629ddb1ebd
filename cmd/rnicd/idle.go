package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/stack"
)

const idleAdaptive = "adaptive"

// idleNames are the policies of --idle, at the numbers that stack gives them.
var idleNames = port.IdleNames

// idlePolicy is what --idle says, or --spin.
func (o *nicOptions) idlePolicy() (stack.Idle, error) {
	at := slices.Index(idleNames, o.idle)
	switch {
	case o.idle == "": // a command without the flag
		at = int(stack.IdleAdaptive)
	case at < 0:
		return 0, fmt.Errorf("--idle %q: want %s", o.idle, strings.Join(idleNames, ", "))
	}
	if o.spin {
		if len(o.given("idle")) > 0 && o.idle != "spin" {
			return 0, fmt.Errorf("--spin and --idle %s: give only one", o.idle)
		}
		return stack.IdleSpin, nil
	}
	return stack.Idle(at), nil
}
