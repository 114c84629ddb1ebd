//go:build dpdk

package dpdk

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/stretchr/testify/require"
)

func writePcap(t *testing.T, path string, frames [][]byte) {
	t.Helper()
	f, err := os.Create(path)
	require.NoError(t, err)
	defer f.Close()
	w := pcapgo.NewWriter(f)
	require.NoError(t, w.WriteFileHeader(65535, layers.LinkTypeEthernet))
	for i, fr := range frames {
		require.NoError(t, w.WritePacket(gopacket.CaptureInfo{Timestamp: time.Unix(int64(i), 0), CaptureLength: len(fr), Length: len(fr)}, fr))
	}
}

func readPcap(t *testing.T, path string) (frames [][]byte) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	require.NoError(t, err)
	for {
		data, _, err := r.ReadPacketData()
		if err != nil {
			return frames
		}
		frames = append(frames, data)
	}
}

// net_pcap reads frames from one file and writes to another; one that does not fit an mbuf arrives
// as a chain.
func TestPcapFiles(t *testing.T) {
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in.pcap"), filepath.Join(dir, "out.pcap")
	r := newRand(t)
	var frames [][]byte
	for range 300 {
		frames = append(frames, frame(r, 60+r.IntN(1400)))
	}
	frames[100] = frame(r, 5000)
	writePcap(t, in, frames)
	want := append(append([][]byte{}, frames[:100]...), frames[101:]...)

	s := openSide(t, Config{Vdev: "net_pcap0,rx_pcap=" + in + ",tx_pcap=" + out}, 1024, 2048)
	require.Equal(t, want, s.receive(t, len(want), nil))
	require.EqualValues(t, 1, s.queue.Counters().RxTooLong, "the chain")
	s.send(t, want...)
	s.settled(t)
	require.NoError(t, s.port.Close())
	require.Equal(t, want, readPcap(t, out))
}
