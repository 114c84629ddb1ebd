package peer

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"github.com/rnicd/rnicd/internal/printable"
	"github.com/rnicd/rnicd/rnic"
)

// A server of ours that does not serve a request rejects it in the MPA Reply with these octets and
// a text: a client of the wrong server can read why.
var magicRefuse = []byte("RNCX")

// textMax leaves room in the private data of a Reply.
const textMax = 400

// Later ends the text for a client that was refused because others are being served, and for
// nothing of its own.
const Later = "; try again later"

// IsLater says whether an error is such a refusal.
func IsLater(err error) bool { return err != nil && strings.HasSuffix(err.Error(), Later) }

// RefusedError is a server's own no.
type RefusedError struct {
	What string // was asked for: the protocol
	Text string // the server's: whatever octets it has sent
}

func (e *RefusedError) Error() string {
	return e.What + ": the server refused: " + printable.Text(e.Text)
}

// Refuse rejects a request with a text, and tells of it, unless told is nil, with what stood in the
// way if the peer did not hear it. It returns when the connection is over: ending the server then
// takes nothing from the peer.
func Refuse(ctx context.Context, req *rnic.ConnRequest, why string,
	told func(remote netip.AddrPort, why string)) {
	text := why[:min(len(why), textMax)]
	if err := req.Reject(ctx, append(bytes.Clone(magicRefuse), text...)); err != nil {
		why += fmt.Sprintf(" (and the peer did not hear it: %v)", err)
	}
	select {
	case <-req.Done():
	case <-ctx.Done():
	}
	if told != nil {
		told(req.Remote(), why)
	}
}

// Accept is ConnRequest.Accept. Where there is no room here for another connection it refuses the
// request, as Refuse does.
func Accept(
	ctx context.Context, req *rnic.ConnRequest, qp *rnic.QueuePair, conn rnic.ConnParam,
	told func(remote netip.AddrPort, why string),
) (refused bool, err error) {
	err = req.Accept(ctx, qp, conn)
	if refused = err != nil && qp.State() == rnic.Idle; refused {
		Refuse(ctx, req, err.Error(), told)
	}
	return refused, err
}

// Refusal is a *RefusedError instead of a Connect's error that is one, in the server's own words.
func Refusal(what string, err error) error {
	var rejected *rnic.RejectedError
	if errors.As(err, &rejected) {
		if text, ok := bytes.CutPrefix(rejected.PrivateData, magicRefuse); ok {
			return &RefusedError{What: what, Text: string(text)}
		}
	}
	return err
}
