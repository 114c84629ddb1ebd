package qp

import (
	"testing"

	"github.com/rnicd/rnicd/rdmap"
	"github.com/stretchr/testify/require"
)

// A peer that copies no headers, as Linux siw: only a Read can have been the reason.
func TestCauseWithoutHeaders(t *testing.T) {
	a := &requester{ord: 2}
	a.outstanding.init(2)
	a.sent.init(2)
	a.sent.push(sentRequest{flushStatus: Flushed})
	a.outstanding.push(outstanding{msn: 1})
	a.findCause(&rdmap.Terminate{Cause: rdmap.CauseBounds})
	require.Equal(t, RemoteAccess, a.sent.at(0).flushStatus)
	a.sent.at(0).flushStatus = Flushed
	a.findCause(&rdmap.Terminate{Cause: 0x1100})
	require.Equal(t, Flushed, a.sent.at(0).flushStatus, "may be about a Write")
}
