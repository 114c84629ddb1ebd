package qp

import (
	"sync"
	"testing"

	"github.com/rnicd/rnicd/rdmap"
	"github.com/stretchr/testify/require"
)

// Many streams add to one word at the same time, on several goroutines: nothing is lost.
//
// req: 7306-5-1
func TestConcurrentAtomics(t *testing.T) {
	const streams, each = 8, 20000
	var word uint64
	var q Engine
	var wg sync.WaitGroup
	for range streams {
		wg.Go(func() {
			add := rdmap.AtomicRequest{Code: rdmap.FetchAdd, Data: 1, Mask: 1 << 63}
			for range each {
				q.apply(&word, &add)
			}
		})
	}
	wg.Wait()
	require.EqualValues(t, streams*each, word)
}
