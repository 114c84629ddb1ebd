package stream

import (
	"io"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

type onlyReader struct{ io.Reader }
type onlyWriter struct{ io.Writer }

// Read, Write and everything below them take no memory once a connection is in use.
func TestNothingIsAllocatedPerMessage(t *testing.T) {
	_, c, s := newPair(t, labConfig{})
	var wg sync.WaitGroup
	wg.Go(func() { _, _ = io.CopyBuffer(onlyWriter{s}, onlyReader{s}, make([]byte, 32<<10)) })
	piece := make([]byte, 10_000)
	exchange := func() {
		_, err := c.Write(piece)
		if err == nil {
			_, err = io.ReadFull(c, piece)
		}
		if err != nil {
			t.Error(err)
		}
	}
	for range 100 {
		exchange()
	}
	// on one processor, where each way is a time slice
	require.Zero(t, testing.AllocsPerRun(50, exchange))
	require.NoError(t, c.CloseWrite())
	wg.Wait()
}
