package netlab

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

// WritePcap writes Ethernet frames to a pcap file in a temporary directory, with timestamps from
// 0 in steps of apart.
func WritePcap(t testing.TB, frames [][]byte, apart time.Duration) (path string) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "frames.pcap")
	f, err := os.Create(path)
	require.NoError(t, err)
	w := pcapgo.NewWriter(f)
	require.NoError(t, w.WriteFileHeader(65535, layers.LinkTypeEthernet))
	for i, b := range frames {
		at := time.Unix(0, 0).Add(time.Duration(i) * apart)
		require.NoError(
			t, w.WritePacket(gopacket.CaptureInfo{Timestamp: at, CaptureLength: len(b), Length: len(b)}, b))
	}
	require.NoError(t, f.Close())
	return path
}

// ReadPcap returns the frames of a pcap file.
func ReadPcap(t testing.TB, path string) (frames [][]byte) {
	t.Helper()
	f, err := os.Open(path)
	require.NoError(t, err)
	defer f.Close()
	r, err := pcapgo.NewReader(f)
	require.NoError(t, err)
	for {
		b, _, err := r.ReadPacketData()
		if err != nil {
			return frames
		}
		frames = append(frames, b)
	}
}
