package rnic

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A Write lands in the peer's memory and tells only the one who posted it; a Send fills a receive buffer. Both ways.
//
// req: 5040-5.1-1, 5040-5.1-2, 5040-3.2-2, 5042-2.2.6-1, 5040-5.1-7, D01-3.1.2-13
func TestExchange(t *testing.T) {
	over(t, all, rigConfig{}, func(t *testing.T, r *rig) {
		s, c := r.connect(QPOptions{}, QPOptions{})
		r.exchange(s, c)
		r.exchange(s, c)
		require.Empty(t, s.done)
		require.Empty(t, c.done)
		r.close(s, c)
	})
}
