package stack

import "github.com/rnicd/rnicd/internal/inet"

// Names of types that Config, Counters and AddrStatus contain, for programs that make a Poller.
type (
	MAC              = inet.MAC
	Route            = inet.Route
	NeighbourConfig  = inet.NeighbourConfig
	NeighbourStats   = inet.NeighbourStats
	ListenerStats    = inet.ListenerStats
	ReassemblyConfig = inet.ReassemblyConfig
	PathMTUConfig    = inet.PathMTUConfig
)
