package stack

import (
	"github.com/rnicd/rnicd/internal/inet"
	"github.com/rnicd/rnicd/internal/iphost"
)

// Names of types that Config, Counters and AddrStatus contain, for programs that make a Poller.
type (
	MAC              = inet.MAC
	Addr             = inet.Addr
	Route            = inet.Route
	NeighbourConfig  = inet.NeighbourConfig
	NeighbourStats   = inet.NeighbourStats
	ListenerStats    = inet.ListenerStats
	ReassemblyConfig = inet.ReassemblyConfig
	PathMTUConfig    = inet.PathMTUConfig
)

// AddrState is the result of duplicate address detection for an address of ours.
type AddrState = iphost.State

const (
	AddrTentative = iphost.Tentative // being checked: not used yet
	AddrUsable    = iphost.Usable
	AddrDuplicate = iphost.Duplicate // another host has it: not used, for good
)
