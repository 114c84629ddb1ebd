package tcp

import "github.com/rnicd/rnicd/internal/cc"

// Congestion is a congestion control. One value serves any number of connections.
type Congestion = cc.Algorithm

// Congestions are the names of all congestion controls, for a configuration's help.
func Congestions() []string { return cc.Names() }

// CongestionByName finds the congestion control that a configuration names.
func CongestionByName(name string) (Congestion, error) { return cc.ByName(name) }
