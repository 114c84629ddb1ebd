//go:build dpdk

package dpdk

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
)

// net_pcap receives the frames of one file and sends into another. A frame longer than an mbuf
// arrives as a chain, and is dropped.
func TestPcapFiles(t *testing.T) {
	out := filepath.Join(t.TempDir(), "out.pcap")
	r := newRand(t)
	var frames [][]byte
	for range 300 {
		frames = append(frames, frame(r, 60+r.IntN(1400)))
	}
	frames[100] = frame(r, 5000)
	in := netlab.WritePcap(t, frames, time.Second)
	want := append(append([][]byte{}, frames[:100]...), frames[101:]...)

	s := openSide(t, Config{Vdev: "net_pcap0,rx_pcap=" + in + ",tx_pcap=" + out}, 1024, 2048)
	require.Equal(t, want, s.receive(t, len(want), nil))
	require.EqualValues(t, 1, s.queue.Counters().RxTooLong, "the chain")
	s.send(t, want...)
	s.settled(t)
	require.NoError(t, s.port.Close())
	require.Equal(t, want, netlab.ReadPcap(t, out))
}
