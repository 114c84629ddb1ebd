// Package cmd is the daemon's command line for a program with drivers of its own. The program's
// main function registers each with pmd.Register and then calls Main. Its commands are serve,
// check, doctor, status, top, ss, capture, events and man, as those of rnicd.
package cmd

import "github.com/rnicd/rnicd/internal/daemon/command"

// Main runs the command that the process's arguments name, with the drivers of this module and
// those that were registered. It does not return.
func Main() { command.Main() }
