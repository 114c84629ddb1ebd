package connect

import (
	"errors"

	"github.com/rnicd/rnicd/mpa"
	"github.com/rnicd/rnicd/rnic/internal/transport"
	"github.com/rnicd/rnicd/stack"
)

// Refusal is why this end did not go on with a start-up that a peer began.
type Refusal uint8

// Refusals.
const (
	Taken                  Refusal = iota // it did, or the peer gave up, or this end closes
	RefusedBacklog                        // the ULP has as many Requests to decide on as it wants to
	RefusedDialect                        // a dialect, or revision, that is not served
	RefusedPrivateData                    // more private data than is taken
	RefusedMalformed                      // no Request
	RefusedTimeout                        // the Request did not come in time
	RefusedUndecided                      // the ULP did not decide in time
	RefusedGaveWay                        // it had said nothing yet, and its place was needed
	RefusedConnections                    // over kernel sockets: Config.ConnsMax
	RefusedPeerConnections                // over kernel sockets: Config.PeerMax
	RefusedReadDepth                      // the Initiator's IRD is less than the ULP needs
	RefusedSystem                         // the kernel had no descriptor, or refused a socket's option
	RefusedULP                            // by the ULP
	RefusalMax
)

// RefusalOf finds it in the error with which a Responder's connection ended before full operation.
func RefusalOf(err error) Refusal {
	var revision *Revision
	var frame *mpa.Error
	switch {
	case errors.As(err, &revision):
		return RefusedDialect
	case errors.Is(err, ErrStartupTimeout):
		return RefusedTimeout
	case errors.Is(err, ErrUndecided):
		return RefusedUndecided
	case errors.Is(err, stack.ErrGaveWay):
		return RefusedGaveWay
	case errors.Is(err, mpa.ErrPrivateData):
		return RefusedPrivateData
	case errors.As(err, &frame) && frame.Code == mpa.ErrStartup:
		return RefusedMalformed
	}
	return Taken
}

// refusalOfSocket is RefusalOf for a socket that no connection was made of.
func refusalOfSocket(err error) Refusal {
	switch {
	case errors.Is(err, transport.ErrPeerMax):
		return RefusedPeerConnections
	case errors.Is(err, stack.ErrConnMax):
		return RefusedConnections
	case errors.Is(err, ErrClosed):
		return Taken
	}
	return RefusedSystem
}
