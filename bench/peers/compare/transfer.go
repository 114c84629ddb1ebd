package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/rnicd/rnicd/bench/peers/measure"
)

// way is a direction, seen from the stack that is measured.
type way string

const (
	in  way = "in"  // kernel -> stack
	out way = "out" // stack -> kernel
)

// cell is one row of the table.
type cell struct {
	mtu  int
	way  way
	peer string
}

func (c cell) String() string { return fmt.Sprintf("MTU %d %s %s", c.mtu, c.way, c.peer) }

const (
	device     = "peer0"
	stackAddr  = "10.9.0.1"
	kernelAddr = "10.9.0.254"
	// A TAP's queue drops what it cannot hold. No stack's window is as large as this.
	queueLen = "10000"
	patience = 20 * time.Second // beyond the transfer itself
)

// sample is one transfer.
type sample struct {
	gbps      float64
	stackCPU  float64 // seconds a GiB
	kernelCPU float64 // of the ordinary program at the other end, likewise
}

// measureOnce makes a namespace, moves one stream and removes it.
func measureOnce(ctx context.Context, p *plan, c cell, e peer) (sample, error) {
	ctx, cancel := context.WithTimeout(ctx, p.length+patience)
	defer cancel()
	n, err := newNet(ctx, e, c.mtu)
	defer n.remove()
	if err != nil {
		return sample{}, err
	}
	role, other := measure.Sink, measure.Source
	if c.way == out {
		role, other = other, role
	}
	length := "--for=" + p.length.String()
	args := append([]string{"--role=" + string(role), length}, e.args...)
	if e.tap {
		args = append(args, "--dev="+device, "--addr="+stackAddr+"/24", fmt.Sprintf("--mtu=%d", c.mtu))
	} else {
		args = append(args, fmt.Sprintf("--listen=%s:%d", stackAddr, measure.Port))
	}
	server, err := start(ctx, n.server, e.path, args...)
	if err != nil {
		return sample{}, err
	}
	defer server.end()
	if err := server.ready(); err != nil {
		return sample{}, err
	}
	if err := n.attach(ctx); err != nil {
		return sample{}, err
	}
	client, err := start(ctx, n.client, filepath.Join(p.bin, "kernel"),
		"--role="+string(other), length,
		fmt.Sprintf("--connect=%s:%d", stackAddr, measure.Port))
	if err != nil {
		return sample{}, err
	}
	defer client.end()
	ours, err := server.result()
	if err != nil {
		return sample{}, err
	}
	theirs, err := client.result()
	if err != nil {
		return sample{}, err
	}
	return judge(c.way, ours, theirs)
}

// judge takes the receiver's word for the time, and wants both to have counted the same octets.
func judge(w way, stack, kernel measure.Result) (sample, error) {
	if stack.Octets != kernel.Octets {
		return sample{}, fmt.Errorf("the stack counts %d octets, the kernel %d", stack.Octets,
			kernel.Octets)
	}
	if stack.Octets == 0 {
		return sample{}, errors.New("nothing was moved")
	}
	receiver := stack
	if w == out {
		receiver = kernel
	}
	return sample{receiver.Gbps(), stack.CPUPerGiB(), kernel.CPUPerGiB()}, nil
}

// network is one namespace with the TAP's kernel side in it, or two with a veth pair.
type network struct {
	client, server string   // may be the same
	made           []string // what is to be removed
	mtu            int
}

func newNet(ctx context.Context, e peer, mtu int) (*network, error) {
	name := fmt.Sprintf("rnicd-peers-%d", os.Getpid())
	n := &network{client: name, server: name, mtu: mtu}
	if !e.tap {
		n.server += "-s"
	}
	for _, ns := range slices.Compact([]string{n.client, n.server}) {
		if err := ip(ctx, "netns add "+ns); err != nil {
			return n, err
		}
		n.made = append(n.made, ns)
	}
	if e.tap {
		return n, nil
	}
	err := ip(ctx, fmt.Sprintf("link add %s mtu %d netns %s type veth peer name %s mtu %d netns %s",
		device, mtu, n.client, device, mtu, n.server))
	if err != nil {
		return n, err
	}
	if err := ip(ctx, fmt.Sprintf("-n %s addr add %s/24 dev %s", n.server, stackAddr,
		device)); err != nil {
		return n, err
	}
	return n, ip(ctx, fmt.Sprintf("-n %s link set %s up", n.server, device))
}

// attach brings the kernel's side up; the stack has made its device.
func (n *network) attach(ctx context.Context) error {
	if err := ip(ctx, fmt.Sprintf("-n %s link set %s mtu %d txqueuelen %s up", n.client, device, n.mtu,
		queueLen)); err != nil {
		return err
	}
	return ip(ctx, fmt.Sprintf("-n %s addr add %s/24 dev %s", n.client, kernelAddr, device))
}

func (n *network) remove() {
	// also when the transfer's has ended
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
	defer cancel()
	for _, ns := range n.made {
		if err := ip(ctx, "netns del "+ns); err != nil {
			fmt.Fprintln(os.Stderr, "compare:", err)
		}
	}
}

// ip runs iproute2's command with the words of text.
func ip(ctx context.Context, text string) error {
	b, err := exec.CommandContext(ctx, "ip", strings.Fields(text)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", text, err, strings.TrimSpace(string(b)))
	}
	return nil
}

// process is a running end.
type process struct {
	cmd   *exec.Cmd
	stdin io.Closer
	lines *bufio.Scanner
	name  string
}

// start runs path in namespace ns. It is killed when ctx ends.
func start(ctx context.Context, ns, path string, args ...string) (*process, error) {
	cmd := exec.CommandContext(ctx, "ip", append([]string{"netns", "exec", ns, path}, args...)...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{cmd, stdin, bufio.NewScanner(stdout), filepath.Base(path)}, nil
}

func (p *process) ready() error {
	for p.lines.Scan() {
		if p.lines.Text() == "ready" {
			return nil
		}
	}
	return fmt.Errorf("%s ended before it was ready", p.name)
}

func (p *process) result() (measure.Result, error) {
	for p.lines.Scan() {
		if r, ok, err := measure.Parse(p.lines.Text()); ok {
			return r, err
		}
	}
	return measure.Result{}, fmt.Errorf("%s ended, or was ended after %v, without a result",
		p.name, patience)
}

// end lets the process end, with force if it does not.
func (p *process) end() {
	_ = p.stdin.Close()
	kill := time.AfterFunc(2*time.Second, func() { _ = p.cmd.Process.Kill() })
	defer kill.Stop()
	_ = p.cmd.Wait() // how it ended does not matter: its result is there, or the transfer has failed
}
