package rnic

import "github.com/rnicd/rnicd/internal/wq"

// State of a QueuePair, as the verbs have them; package wq draws how one leads to another.
type State = wq.State

const (
	Idle        = wq.Idle
	Connecting  = wq.Connecting
	RTS         = wq.RTS
	Closing     = wq.Closing
	Terminating = wq.Terminating
	Error       = wq.Error
	Closed      = wq.Closed
)
