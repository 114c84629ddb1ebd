package memif

import (
	"os"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// step is octets that a client writes as one message, with descriptors.
type step struct {
	octets []byte
	fds    []int
}

func say(m *message, fds ...int) step { return step{m[:], fds} }

func addsRegion(index int, size uint64, fds ...int) step {
	return say((&addRegion{index, size}).message(), fds...)
}

func addsRing(r addRing, fds ...int) step { return say(r.message(), fds...) }

func (c *rawClient) writes(s step) {
	_, _, err := c.conn.WriteMsgUnix(s.octets, unix.UnixRights(s.fds...), nil)
	require.NoError(c.t, err)
}

// A client that does not keep to the protocol is told why and loses its connection, and takes
// nothing with it: others go on, and the interface is free again. All but its last message are
// acknowledged.
func TestMalformedClients(t *testing.T) {
	event, pipe := rawEventfd(t), rawPipe(t)
	small, _ := rawRegion(t, 4096, unix.F_SEAL_SHRINK)
	open, _ := rawRegion(t, 4096, 0)
	large, _ := rawRegion(t, 3<<20, unix.F_SEAL_SHRINK)
	memory, _ := rawRegion(t, rawBytes, unix.F_SEAL_SHRINK)
	file := must(os.CreateTemp("/var/tmp", "memif"))(t)
	defer os.Remove(file.Name())
	defer file.Close()
	require.NoError(t, file.Truncate(4096))
	ordinary := int(file.Fd())

	asks := func(change func(*initiate), fds ...int) step {
		i := goodInit()
		change(i)
		return say(i.message(), fds...)
	}
	hi, connect := say(goodInit().message()), say(interfaceMessage(msgConnect, "x"))
	in, out := addRing{c2s: true, log2: 4}, addRing{offset: 1024, log2: 4}
	laid := func(in, out addRing) []step {
		return []step{hi, addsRegion(0, rawBytes, memory), addsRing(in, event), addsRing(out, event),
			connect}
	}
	for _, c := range []struct {
		name, reason string
		steps        []step
	}{
		{"short message", "Invalid message size", []step{{make([]byte, 127), nil}}},
		{"long message", "Invalid message size", []step{{make([]byte, 129), nil}}},
		{"unknown type", "Unexpected", []step{say(newMessage(77))}},
		{"unknown type later", "Unknown message", []step{hi, say(newMessage(77))}},
		{"region first", "Unexpected", []step{addsRegion(0, 4096, event)}},
		{"connect first", "Unexpected", []step{connect}},
		{"wrong version", "Incompatible version", []step{asks(func(i *initiate) { i.version = 1 << 8 })}},
		{"wrong mode", "Ethernet", []step{asks(func(i *initiate) { i.mode = 1 })}},
		{"wrong interface", "ID not found", []step{asks(func(i *initiate) { i.id = 99 })}},
		{"no secret", "Secret required", []step{asks(func(i *initiate) { i.id = 1 })}},
		{"wrong secret", "Incorrect secret",
			[]step{asks(func(i *initiate) { i.id, i.secret = 1, secretOf("wrong") })}},
		{"init with a descriptor", "file descriptor", []step{say(goodInit().message(), event)}},
		{"two descriptors", "Too many", []step{say(goodInit().message(), event, event)}},
		{"twenty descriptors", "Too many",
			[]step{say(goodInit().message(), slices.Repeat([]int{event}, 20)...)}},
		{"init twice", "Unexpected", []step{hi, hi}},

		{"region without memory", "file descriptor", []step{hi, addsRegion(0, 4096)}},
		{"region out of order", "Invalid region index", []step{hi, addsRegion(1, 4096, small)}},
		{"region unsealed", "not sealed", []step{hi, addsRegion(0, 4096, open)}},
		{"region of an ordinary file", "not a memfd", []step{hi, addsRegion(0, 4096, ordinary)}},
		{"region of a pipe", "not a memfd", []step{hi, addsRegion(0, 4096, pipe)}},
		{"region longer than its file", "4097 octets in a file of 4096",
			[]step{hi, addsRegion(0, 4097, small)}},
		{"region of nothing", "0 octets", []step{hi, addsRegion(0, 0, small)}},
		{"regions beyond the limit", "Regions of more than", []step{hi, addsRegion(0, 3<<20, large),
			addsRegion(1, 3<<20, large), addsRegion(2, 3<<20, large)}},
		{"region as long as can be", "Regions of more than",
			[]step{hi, addsRegion(0, 4096, small), addsRegion(1, ^uint64(0), small)}},

		{"ring without eventfd", "file descriptor", []step{hi, addsRing(in)}},
		{"ring with a pipe", "eventfd", []step{hi, addsRing(addRing{log2: 4}, pipe)}},
		{"ring out of order", "Invalid ring index",
			[]step{hi, addsRing(addRing{index: 1, log2: 4}, event)}},
		{"too many rings", "Invalid ring index", []step{hi, addsRing(addRing{log2: 4}, event),
			addsRing(addRing{index: 1, log2: 4}, event)}},
		{"ring too long", "2^15", []step{hi, addsRing(addRing{log2: 15}, event)}},
		{"no rings", "0 rings", []step{hi, connect}},
		{"one ring", "1 rings one way and 0", []step{hi, addsRing(in, event), connect}},
		{"ring in no region", "no region", laid(addRing{c2s: true, region: 1, log2: 4}, out)},
		{"ring outside of its region", "ring of 384 octets at offset 65472",
			laid(in, addRing{offset: rawBytes - 64, log2: 4})},
		{"ring far outside", "of a region of", laid(in, addRing{offset: 1<<32 - 64, log2: 4})},
		{"ring longer than its region", "of a region of", laid(addRing{c2s: true, log2: 14}, out)},
		{"ring between words", "multiple of 8", laid(addRing{c2s: true, offset: 4, log2: 4}, out)},
		{"wrong cookie", "cookie", laid(addRing{c2s: true, offset: 2048, log2: 4}, out)},
	} {
		t.Run(c.name, func(t *testing.T) {
			client, server, l := newPair(t, pairConfig{
				client: Config{ID: 5}, bind: BindConfig{ID: 5}, listen: ListenConfig{RegionBytesMax: 8 << 20},
			})
			bound := bind(t, l, BindConfig{}, 64)
			bind(t, l, BindConfig{ID: 1, Secret: "right"}, 64)
			raw := rawDial(t, l.cfg.Socket)
			for i, s := range c.steps {
				raw.writes(s)
				if i < len(c.steps)-1 {
					require.Equal(t, msgACK, raw.next().typ())
				}
			}
			raw.refused(c.reason)
			bothWays(t, newRand(t), client, server, 2)
			rawDial(t, l.cfg.Socket).init() // the interface is free again
			require.False(t, bound.port.LinkUp())
		})
	}
}

// rawPipe is the end of a pipe, where something else was to be.
func rawPipe(t testing.TB) int {
	r, w, err := os.Pipe()
	require.NoError(t, err)
	t.Cleanup(func() { r.Close(); w.Close() })
	return int(w.Fd())
}
