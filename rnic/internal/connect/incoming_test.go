package connect

import (
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"
)

// silent is a connection of which nothing has come until heard, and how often that was asked.
type silent struct {
	heard bool
	asked int
}

func (s *silent) Heard() bool { return s.heard }

func (s *silent) Unheard() bool {
	s.asked++
	return !s.heard
}

// A connection is asked about when its own client connects again, and no more once it was heard;
// of silent ones the last are kept.
func TestSocketOrderAsksOfOneClient(t *testing.T) {
	var o SocketOrder
	mine, other := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	first, second := &silent{}, &silent{}
	o.next(earlier{mine, first})
	for range 2 * unheardMax {
		heard := &silent{}
		o.next(earlier{other, heard})
		heard.heard = true
		require.Zero(t, first.asked)
	}
	o.next(earlier{mine, second})
	require.Equal(t, 1, first.asked)
	first.heard = true
	o.next(earlier{mine, &silent{}})
	require.Equal(t, 1, first.asked)
	require.Equal(t, 1, second.asked)
	require.Len(t, o.unheard, 2)
	for range 2 * unheardMax {
		o.next(earlier{other, &silent{}})
	}
	require.Len(t, o.unheard, unheardMax)
}
