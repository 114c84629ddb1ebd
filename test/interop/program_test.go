package interop

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/skip"
)

// programAddr is where a C program has our stack: another host than that of the other tests.
const programAddr = "10.9.0.3"

// programEnd is our end of a conversation between C programs: rnicd run over one of the two
// transports.
type programEnd struct {
	*rig
	pmd []string // flags; none: kernel sockets
}

// overPrograms runs a test with C programs at both ends, over both transports. how is how the guest
// loads siw.
func overPrograms(t *testing.T, how string, f func(p *programEnd)) {
	t.Helper()
	if !*live {
		skip.Because(t, skip.VirtualMachine, "-live is not set")
	}
	makeLibraries(t)
	for name, p := range map[string]*programEnd{
		overSockets: {rig: &rig{host: bridgeAddr.Addr().String()}},
		overOurTCP: {rig: &rig{host: programAddr},
			pmd: strings.Fields("--pmd tap --dev " + ourTAP + " --addr " + programAddr +
				"/24 --no-offload --no-dad")},
	} {
		t.Run(name, func(t *testing.T) {
			needCard(t)
			ctx, cancel := context.WithTimeout(context.Background(), patience)
			defer cancel()
			p.t, p.ctx = t, ctx
			p.siw(how)
			f(p)
		})
	}
}

// libraries are made once, beside our command.
var libraries struct {
	once sync.Once
	err  error
}

func makeLibraries(t *testing.T) {
	t.Helper()
	libraries.once.Do(func() {
		libraries.err = netlab.BuildLibraries("../..", filepath.Dir(os.Getenv(inside)))
	})
	require.NoError(t, libraries.err)
}

// run starts a program over our libraries. Its TAP is in the bridge before: it is the program that
// opens it.
func (p *programEnd) run(flags, line string) *netlab.Process {
	p.t.Helper()
	if len(p.pmd) > 0 {
		if _, err := net.InterfaceByName(ourTAP); err != nil {
			require.NoError(p.t, ip("tuntap add dev "+ourTAP+" mode tap"))
			p.t.Cleanup(func() { require.NoError(p.t, ip("link delete "+ourTAP)) })
			require.NoError(p.t, ip("link set "+ourTAP+" master "+bridge+" up"))
		}
	}
	words := append(strings.Fields("run --verbose --peer siw "+flags), p.pmd...)
	return netlab.Start(
		p.t, exec.Command(os.Getenv(inside), append(append(words, "--"), strings.Fields(line)...)...))
}

// exchange is a conversation of two programs. PORT and HOST stand for the server's.
type exchange struct {
	flags          string // of rnicd run, beside those that each has
	server, client string
}

// printed is what the two ends have printed.
type printed struct{ server, client string }

func at(line, host string, port int) string {
	return strings.NewReplacer("PORT", strconv.Itoa(port), "HOST", host).Replace(line)
}

// serve has our end listen and the guest's connect. Both end well.
func (p *programEnd) serve(x exchange) printed {
	p.t.Helper()
	port := newPort()
	server := p.run(x.flags, at(x.server, "", port))
	server.Expect(p.t, 1, "^rnicd: listening at ")
	job := p.start("exec %s", at(x.client, p.host, port))
	p.ends(job)
	require.Zero(p.t, server.Wait(p.t), "%s\n%s", server, job)
	p.settled(x, server)
	return printed{server.String(), job.String()}
}

// dial has the guest's end listen and ours connect. Both end well.
//
// Between the connection of its handshake and those that it measures perftest's server does not
// listen, and its client does not wait: our TCP sends its SYN again until it does.
func (p *programEnd) dial(x exchange) printed {
	p.t.Helper()
	port := newPort()
	job := p.start("exec %s", at(x.server, "", port))
	_, err := vm.Run(p.ctx, fmt.Sprintf("unrefused %d && listening %d", port, port))
	require.NoError(p.t, err, "%s", job)
	client := p.run(x.flags, at(x.client, guestAddr.Addr().String(), port))
	require.Zero(p.t, client.Wait(p.t), "%s\n%s", client, job)
	p.ends(job)
	p.settled(x, client)
	return printed{job.String(), client.String()}
}

// A client that comes before the guest's server waits for it, and no longer than that: another port
// is refused as before.
func TestUnrefused(t *testing.T) {
	overThese(t, []string{overSockets}, func(r *rig) {
		early, none := newPort(), newPort()
		must(vm.Run(r.ctx, fmt.Sprintf("unrefused %d", early)))(t)
		dial := func(port int) error {
			c, err := new(net.Dialer).DialContext(r.ctx, "tcp",
				net.JoinHostPort(guestAddr.Addr().String(), strconv.Itoa(port)))
			if err == nil {
				err = c.Close()
			}
			return err
		}
		dialled := make(chan error, 1)
		go func() { dialled <- dial(early) }()
		must(vm.Run(r.ctx, "refusals"))(t)
		require.ErrorIs(t, dial(none), syscall.ECONNREFUSED)
		r.siw("std")
		r.start("exec probe listen %d accept", early)
		require.NoError(t, <-dialled)
	})
}

// noCRC is the flag for a connection without CRC, if siw asks for none.
const noCRC = "--no-crc"

// settled: our end's connections have the CRC or not, as its flags say.
func (p *programEnd) settled(x exchange, ours *netlab.Process) {
	p.t.Helper()
	crc := map[bool]string{false: "CRC32C", true: "no CRC"}[x.flags == noCRC]
	all := ours.Lines("^rnicd: connected, ")
	require.NotEmpty(p.t, all, "%s", ours)
	require.Len(p.t, ours.Lines("^rnicd: connected, .*: (rfc6581|rfc5044), "+crc+"$"),
		len(all), "%s", ours)
}

// rping in either role, in each way in which siw asks that settles read depths, and each that a
// program of ours may ask in.
func TestProgramsRping(t *testing.T) {
	for _, way := range []struct {
		name, module, flags string
		size                int
	}{
		{"no CRC", "std", noCRC, 3000},
		{"as RoCE", "std", "--device roce", 300},
		{"CRC that we ask for", "std", "", 65535},
		{"CRC that siw asks for", "opt mpa_crc_required=1", "", 26},
		{"peer-to-peer", "opt peer_to_peer=1", noCRC, 64},
		{"peer-to-peer, CRC", "opt peer_to_peer=1 mpa_crc_required=1", "", 20000},
	} {
		// Of a long ping, on the guest's slow console, rping prints still while it ends, and then reads
		// events of a channel that it has closed: status 255.
		line := fmt.Sprintf("rping -V -C 10 -S %d -p PORT", way.size)
		if way.size <= 3000 {
			line += " -v"
		}
		x := exchange{way.flags, line + " -s", line + " -c -a HOST"}
		pinged := func(p *programEnd, ends printed) {
			if way.size > 3000 {
				return
			}
			require.Contains(p.t, ends.client, "\nping data: rdma-ping-9: JKLM")
			require.Contains(p.t, ends.server, "server ping data: rdma-ping-9: JKLM")
		}
		t.Run(way.name+"/our server", func(t *testing.T) {
			overPrograms(t, way.module, func(p *programEnd) { pinged(p, p.serve(x)) })
		})
		t.Run(way.name+"/our client", func(t *testing.T) {
			overPrograms(t, way.module, func(p *programEnd) { pinged(p, p.dial(x)) })
		})
	}
}

// Other programs in either role. ucmatose's server speaks first.
func TestProgramsOther(t *testing.T) {
	for _, x := range []struct {
		name, want string
		exchange
	}{
		{"ucmatose", "return status 0",
			exchange{"", "ucmatose -p PORT -C 10 -S 300", "ucmatose -s HOST -p PORT -C 10 -S 300"}},
		{"ib_write_bw", " 3000       200 ", exchange{"", "ib_write_bw -R -F -s 3000 -n 200 -p PORT",
			"ib_write_bw -R -F -s 3000 -n 200 -p PORT HOST"}},
		{"rdma_client", "rdma_client: end 0",
			exchange{"", "rdma_server -p PORT", "rdma_client -s HOST -p PORT"}},
	} {
		for _, role := range []string{"our server", "our client"} {
			t.Run(x.name+"/"+role, func(t *testing.T) {
				overPrograms(t, "std", func(p *programEnd) {
					turn := p.serve
					if role == "our client" {
						turn = p.dial
					}
					require.Contains(t, turn(x.exchange).client, x.want)
				})
			})
		}
	}
}
