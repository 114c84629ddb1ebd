package memif

import (
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// malformed is what a client does against the protocol, and the reason that it is told.
type malformed struct {
	reason string
	f      func(t *testing.T, c *rawClient)
}

// refuses has a client do each. It loses its connection and takes nothing with it: others go on,
// and the interface is free again.
func refuses(t *testing.T, cases map[string]malformed) {
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			client, server, l := newPair(t, pairConfig{
				client: Config{ID: 5}, bind: BindConfig{ID: 5}, listen: ListenConfig{RegionBytesMax: 8 << 20},
			})
			bound, err := l.Bind(BindConfig{})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, bound.Close()) })
			locked, err := l.Bind(BindConfig{ID: 1, Secret: "right"})
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, locked.Close()) })
			raw := rawDial(t, l.cfg.Socket)
			c.f(t, raw)
			raw.refused(c.reason)
			bothWays(t, newRand(t), client, server, 2)
			rawDial(t, l.cfg.Socket).init() // the interface is free again
			require.False(t, bound.LinkUp())
		})
	}
}

// The first messages, and what is no message.
func TestMalformedMessages(t *testing.T) {
	connect := interfaceMessage(msgConnect, "x")
	wrongVersion, wrongMode, wrongID, wrongSecret := goodInit(), goodInit(), goodInit(), goodInit()
	wrongVersion.version, wrongMode.mode, wrongID.id, wrongSecret.id = 1<<8, 1, 99, 1
	badSecret := &initiate{version: version, id: 1, secret: secretOf("wrong")}
	refuses(t, map[string]malformed{
		"short message": {"Invalid message size", func(t *testing.T, c *rawClient) {
			_, err := c.conn.Write(make([]byte, 127))
			require.NoError(t, err)
		}},
		"long message": {"Invalid message size", func(t *testing.T, c *rawClient) {
			_, err := c.conn.Write(make([]byte, 129))
			require.NoError(t, err)
		}},
		"unknown type": {"Unexpected", func(t *testing.T, c *rawClient) { c.tells(newMessage(77), -1) }},
		"unknown type later": {"Unknown message", func(t *testing.T, c *rawClient) {
			c.init()
			c.tells(newMessage(77), -1)
		}},
		"region first": {"Unexpected", func(t *testing.T, c *rawClient) {
			c.tells((&addRegion{0, 4096}).message(), rawEventfd(t))
		}},
		"connect first": {"Unexpected", func(t *testing.T, c *rawClient) { c.tells(connect, -1) }},
		"wrong version": {"Incompatible version", func(t *testing.T, c *rawClient) {
			c.tells(wrongVersion.message(), -1)
		}},
		"wrong mode": {"Ethernet", func(t *testing.T, c *rawClient) {
			c.tells(wrongMode.message(), -1)
		}},
		"wrong interface": {"ID not found", func(t *testing.T, c *rawClient) {
			c.tells(wrongID.message(), -1)
		}},
		"no secret": {"Secret required", func(t *testing.T, c *rawClient) {
			c.tells(wrongSecret.message(), -1)
		}},
		"wrong secret": {"Incorrect secret", func(t *testing.T, c *rawClient) {
			c.tells(badSecret.message(), -1)
		}},
		"init with a descriptor": {"file descriptor", func(t *testing.T, c *rawClient) {
			c.tells(goodInit().message(), rawEventfd(t))
		}},
		"two descriptors": {"Too many", func(t *testing.T, c *rawClient) {
			fd := rawEventfd(t)
			_, _, err := c.conn.WriteMsgUnix(goodInit().message()[:], unix.UnixRights(fd, fd), nil)
			require.NoError(t, err)
		}},
		"twenty descriptors": {"Too many", func(t *testing.T, c *rawClient) {
			fds := make([]int, 20)
			fds[0] = rawEventfd(t)
			for i := range fds {
				fds[i] = fds[0]
			}
			_, _, err := c.conn.WriteMsgUnix(goodInit().message()[:], unix.UnixRights(fds...), nil)
			require.NoError(t, err)
		}},
		"init twice": {"Unexpected", func(t *testing.T, c *rawClient) {
			c.init()
			c.tells(goodInit().message(), -1)
		}},
	})
}

// Regions: what is no shared memory, can be taken back, or is more than the server takes.
func TestMalformedRegions(t *testing.T) {
	refuses(t, map[string]malformed{
		"region without memory": {"file descriptor", func(t *testing.T, c *rawClient) {
			c.init()
			c.tells((&addRegion{0, 4096}).message(), -1)
		}},
		"region out of order": {"Invalid region index", func(t *testing.T, c *rawClient) {
			c.init()
			fd, _ := rawRegion(t, 4096, unix.F_SEAL_SHRINK)
			c.tells((&addRegion{1, 4096}).message(), fd)
		}},
		"region unsealed": {"not sealed", func(t *testing.T, c *rawClient) {
			c.init()
			fd, _ := rawRegion(t, 4096, 0)
			c.tells((&addRegion{0, 4096}).message(), fd)
		}},
		"region of an ordinary file": {"not a memfd", func(t *testing.T, c *rawClient) {
			c.init()
			f, err := os.CreateTemp("/var/tmp", "memif")
			require.NoError(t, err)
			t.Cleanup(func() { f.Close(); os.Remove(f.Name()) })
			require.NoError(t, f.Truncate(4096))
			c.tells((&addRegion{0, 4096}).message(), int(f.Fd()))
		}},
		"region of a pipe": {"not a memfd", func(t *testing.T, c *rawClient) {
			c.init()
			c.tells((&addRegion{0, 4096}).message(), rawPipe(t))
		}},
		"region longer than its file": {"4097 octets in a file of 4096",
			func(t *testing.T, c *rawClient) {
				c.init()
				fd, _ := rawRegion(t, 4096, unix.F_SEAL_SHRINK)
				c.tells((&addRegion{0, 4097}).message(), fd)
			}},
		"region of nothing": {"0 octets", func(t *testing.T, c *rawClient) {
			c.init()
			fd, _ := rawRegion(t, 4096, unix.F_SEAL_SHRINK)
			c.tells((&addRegion{0, 0}).message(), fd)
		}},
		"regions beyond the limit": {"Regions of more than", func(t *testing.T, c *rawClient) {
			c.init()
			fd, _ := rawRegion(t, 3<<20, unix.F_SEAL_SHRINK)
			for i := range 2 {
				c.does((&addRegion{i, 3 << 20}).message(), fd)
			}
			c.tells((&addRegion{2, 3 << 20}).message(), fd)
		}},
		"region as long as can be": {"Regions of more than", func(t *testing.T, c *rawClient) {
			c.init()
			fd, _ := rawRegion(t, 4096, unix.F_SEAL_SHRINK)
			c.does((&addRegion{0, 4096}).message(), fd)
			c.tells((&addRegion{1, ^uint64(0)}).message(), fd)
		}},
	})
}

// Rings: too few or too many, and those that lie outside of their regions.
func TestMalformedRings(t *testing.T) {
	connect := interfaceMessage(msgConnect, "x")
	refuses(t, map[string]malformed{
		"ring without eventfd": {"file descriptor", func(t *testing.T, c *rawClient) {
			c.init()
			c.tells((&addRing{c2s: true, log2: 4}).message(), -1)
		}},
		"ring with a pipe": {"eventfd", func(t *testing.T, c *rawClient) {
			c.init()
			c.tells((&addRing{log2: 4}).message(), rawPipe(t))
		}},
		"ring out of order": {"Invalid ring index", func(t *testing.T, c *rawClient) {
			c.init()
			c.tells((&addRing{index: 1, log2: 4}).message(), rawEventfd(t))
		}},
		"too many rings": {"Invalid ring index", func(t *testing.T, c *rawClient) {
			c.init()
			c.does((&addRing{log2: 4}).message(), rawEventfd(t))
			c.tells((&addRing{index: 1, log2: 4}).message(), rawEventfd(t))
		}},
		"ring too long": {"2^15", func(t *testing.T, c *rawClient) {
			c.init()
			c.tells((&addRing{log2: 15}).message(), rawEventfd(t))
		}},
		"no rings": {"0 rings", func(t *testing.T, c *rawClient) {
			c.init()
			c.tells(connect, -1)
		}},
		"one ring": {"1 rings one way and 0", func(t *testing.T, c *rawClient) {
			c.init()
			c.does((&addRing{c2s: true, log2: 4}).message(), rawEventfd(t))
			c.tells(connect, -1)
		}},
		"ring in no region": {"no region", func(t *testing.T, c *rawClient) {
			c.attached(func(in, _ *addRing) { in.region = 1 })
			c.tells(connect, -1)
		}},
		"ring outside of its region": {"ring of 384 octets at offset 65472",
			func(t *testing.T, c *rawClient) {
				c.attached(func(_, out *addRing) { out.offset = rawBytes - 64 })
				c.tells(connect, -1)
			}},
		"ring far outside": {"of a region of", func(t *testing.T, c *rawClient) {
			c.attached(func(_, out *addRing) { out.offset = 1<<32 - 64 })
			c.tells(connect, -1)
		}},
		"ring longer than its region": {"of a region of", func(t *testing.T, c *rawClient) {
			c.attached(func(in, _ *addRing) { in.log2 = 14 })
			c.tells(connect, -1)
		}},
		"ring between words": {"multiple of 8", func(t *testing.T, c *rawClient) {
			c.attached(func(in, _ *addRing) { in.offset = 4 })
			c.tells(connect, -1)
		}},
		"wrong cookie": {"cookie", func(t *testing.T, c *rawClient) {
			c.attached(func(in, _ *addRing) { in.offset = 2048 })
			c.tells(connect, -1)
		}},
	})
}

// rawPipe is the end of a pipe, where something else was to be.
func rawPipe(t testing.TB) int {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { r.Close(); w.Close() })
	return int(w.Fd())
}
