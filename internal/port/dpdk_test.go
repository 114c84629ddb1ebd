//go:build dpdk

package port

import (
	"context"
	"crypto/rand"
	"encoding/binary"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"
	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/internal/crc32c"
	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/skip"
	"github.com/rnicd/rnicd/mem"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/dpdk"
	"github.com/rnicd/rnicd/rnic"
)

// namespace is one of the test's own, for devices of DPDK's.
func namespace(t *testing.T) {
	t.Helper()
	if os.Geteuid() != 0 {
		skip.Missing(t, "not root")
	}
	netlab.Enter(t)
}

func run(t *testing.T, words ...string) {
	t.Helper()
	out, err := exec.Command(words[0], words[1:]...).CombinedOutput()
	require.NoError(t, err, "%q: %s", words, out)
}

func dpdkConfig(t *testing.T, device, addr string) Config {
	t.Helper()
	d := must(Builtin().ByName("dpdk"))(t)
	return Config{Driver: d, Device: device, Addrs: []netip.Prefix{netip.MustParsePrefix(addr)},
		DAD: DADNone, Node: -1}
}

// The options of a port reach its device: it has two queues only when it is told to.
func TestDPDKOptionsReachDevice(t *testing.T) {
	namespace(t)
	run(t, "ip", "link", "add", "rnic0", "type", "veth", "peer", "name", "rnic1")
	run(t, "ip", "link", "set", "rnic0", "up")
	c := dpdkConfig(t, "net_af_packet0,iface=rnic0", "10.9.0.1/24")
	c.Queues = 2
	_, err := Open(c)
	require.ErrorContains(t, err, "has 1 queue pairs, 2 wanted")
	c.Options = map[string]string{"devargs": "qpairs=2,framecnt=1024", "rx_descriptors": "256",
		"rx_buffers": "200"}
	_, err = Open(c)
	require.ErrorContains(t, err, "200 Bufs to receive into do not even fill 256 descriptors")
	c.Options["rx_buffers"] = "2048"
	p := must(Open(c))(t)
	require.IsType(t, &dpdk.Port{}, p.Device())
	require.Len(t, p.Pollers(), 2)
	require.NoError(t, p.Close())
}

// watched keeps the queue that is opened of a port.
type watched struct {
	pmd.Port
	queue **dpdk.Queue
}

func (w watched) Open(i int, pool *mem.Pool) (pmd.Queue, error) {
	q, err := w.Port.Open(i, pool)
	if err == nil {
		*w.queue = q.(*dpdk.Queue)
	}
	return q, err
}

const written = 1 << 20

func opened(t *testing.T, c Config) *Port {
	t.Helper()
	p := must(Open(c))(t)
	t.Cleanup(func() { require.NoError(t, p.Close()) })
	require.NoError(t, p.Start())
	return p
}

func adapter(t *testing.T, p *Port) *rnic.Adapter {
	t.Helper()
	a := must(p.Adapter())(t)
	t.Cleanup(func() { require.NoError(t, a.Close(context.Background())) })
	return a
}

func created(t *testing.T, a *rnic.Adapter) *rnic.CompletionQueue {
	t.Helper()
	return must(a.CreateCQ(300))(t)
}

// What a device cuts is on the wire as it was given: each segment of a bulk Write with markers is a
// whole number of FPDUs, markers where they belong, each FPDU with a good CRC.
func TestDPDKCutsBetweenFPDUs(t *testing.T) {
	netlab.NeedRoot(t)
	ns := netlab.New(t)
	var queue *dpdk.Queue
	var writer, reader *Port
	ns.Do(func() {
		c := dpdkConfig(t, "net_tap0,iface=rnic0,mac=02:00:00:00:00:01", "10.9.0.1/24")
		open := c.Driver.Open
		c.Driver.Open = func(c *Config, a *hugepages.Arena) (pmd.Port, error) {
			p, err := open(c, a)
			return watched{p, &queue}, err
		}
		tap := must(Builtin().ByName("tap"))(t)
		writer = opened(t, c)
		// net_tap cuts what is shorter than its MTU with the headers.
		reader = opened(t, Config{Driver: tap, Device: "rnic1", MTU: 1400, Region: written,
			Addrs: []netip.Prefix{netip.MustParsePrefix("10.9.0.2/24")}, DAD: DADNone, Node: -1})
	})
	ns.Run(t, "sh", "-c", "ip link add br0 type bridge && for i in rnic0 rnic1 br0; do ip link set "+
		"$i up; done && ip link set rnic0 address 02:00:00:00:00:fe && ip link set rnic0 master br0 && "+
		"ip link set rnic1 master br0")
	capture := ns.Capture(t, "rnic0")
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	from, to := adapter(t, writer), adapter(t, reader)
	l := must(to.Listen(ctx, ":7174", rnic.ListenOptions{}))(t)
	defer l.Close()
	pd, cq := to.AllocPD(), created(t, to)
	server := must(to.CreateQP(rnic.QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq}))(t)
	region := must(pd.Register(reader.Region(), rnic.RemoteWrite|rnic.LocalWrite))(t)
	accepted := make(chan error, 1)
	go func() {
		req, err := l.Accept(ctx)
		if err == nil {
			err = req.Accept(ctx, server, rnic.ConnParam{})
		}
		accepted <- err
	}()
	pd, cq = from.AllocPD(), created(t, from)
	client := must(from.CreateQP(rnic.QPOptions{PD: pd, SendCQ: cq, RecvCQ: cq}))(t)
	require.NoError(t, client.Connect(ctx, "10.9.0.2:7174", rnic.ConnParam{}))
	require.NoError(t, <-accepted)
	data := make([]byte, written)
	_, _ = rand.Read(data)
	source, err := pd.Register(data, 0)
	require.NoError(t, err)
	_, err = client.PostSend(rnic.WorkRequest{Op: rnic.OpWrite, Local: source.Slice(0, written),
		Signaled: true, RemoteSTag: region.STag(), RemoteOffset: region.Base()})
	require.NoError(t, err)
	client.Disconnect()
	<-server.Done()
	path := capture.Stop(t)
	require.Equal(t, data, reader.Region())
	runs := make(chan uint64, 1) // counters are the Poller's
	require.NoError(t, writer.Pollers()[0].Submit(func() { runs <- queue.Stats().Runs }))
	require.NotZero(t, <-runs, "the device has cut nothing")
	require.Greater(t, fpdus(t, path), written/1400)
}

// fpdus takes the segments of the writer's stream apart: each is a whole number of FPDUs, with
// markers at every 512th octet of the stream that point at the beginning of theirs, and a good CRC
// (RFC 5044 sections 4.2 to 4.4). It returns how many there are.
func fpdus(t *testing.T, path string) (n int) {
	t.Helper()
	file := must(os.Open(path))(t)
	defer file.Close()
	frames := must(pcapgo.NewReader(file))(t)
	var begin uint32 // sequence number of the first octet after start-up
	for {
		octets, _, err := frames.ReadPacketData()
		if err == io.EOF {
			return n
		}
		require.NoError(t, err)
		p := gopacket.NewPacket(octets, layers.LayerTypeEthernet, gopacket.Default)
		tcp, _ := p.Layer(layers.LayerTypeTCP).(*layers.TCP)
		switch {
		case tcp == nil || tcp.DstPort != 7174 || len(tcp.Payload) == 0:
			continue
		case begin == 0:
			begin = tcp.Seq + uint32(len(tcp.Payload))
			continue
		}
		off := int(tcp.Seq - begin)
		for rest := tcp.Payload; len(rest) > 0; n++ {
			size := fpdu(t, off, rest)
			off, rest = off+size, rest[size:]
		}
	}
}

// fpdu is how long the FPDU at an offset of the stream is, which is judged.
func fpdu(t *testing.T, off int, p []byte) int {
	t.Helper()
	var content []byte // without markers
	head := 0          // where its length stands, to which markers point
	if off%512 == 0 {
		head = 4
	}
	for at := 0; ; at++ {
		require.Less(t, at, len(p), "the FPDU at %d ends after its segment", off)
		if (off+at)%512 == 0 {
			back := max(at-head, 0)
			require.Equal(t, []byte{0, 0, byte(back >> 8), byte(back)}, p[at:at+4], "marker at %d", off+at)
			at += 3
			continue
		}
		content = append(content, p[at])
		if len(content) < 2 || len(content) < (2+int(binary.BigEndian.Uint16(content))+3)&^3+4 {
			continue
		}
		require.Equal(t, binary.LittleEndian.Uint32(p[at-3:]), crc32c.Update(0, p[:at-3]),
			"CRC of the FPDU at %d", off)
		return at + 1
	}
}
