// Package guest boots the virtual machine of package image under qemu's software emulation and runs
// commands in it. It is for tests, and for one guest at a time: everything is bounded in time, and
// the machine dies with the process that started it.
package guest

import (
	"bufio"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/rnicd/rnicd/test/interop/image"
)

// Config of a guest.
type Config struct {
	Image image.Image
	TAP   string       // a device that is there and up
	Addr  netip.Prefix // of the guest
}

// bootTimeout is generous: an emulated processor on a busy machine.
const bootTimeout = 2 * time.Minute

const memoryMiB = 256

// Guest is a running machine.
type Guest struct {
	cmd     *exec.Cmd
	in      io.Writer
	console *os.File // what the kernel says; a file without a name, which goes with the process
	exited  chan struct{}

	mu      sync.Mutex
	jobs    map[string]*Job
	started int
	ready   chan struct{}
}

// Boot starts a guest and returns when it takes orders. It starts in the network namespace of the
// process.
func Boot(ctx context.Context, cfg Config) (*Guest, error) {
	g := &Guest{exited: make(chan struct{}), jobs: map[string]*Job{}, ready: make(chan struct{})}
	var err error
	if g.console, err = nameless(); err != nil {
		return nil, err
	}
	g.cmd = exec.Command("qemu-system-x86_64", arguments(cfg)...)
	g.cmd.ExtraFiles = []*os.File{g.console}
	g.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL, Setpgid: true}
	var errs tail
	g.cmd.Stderr = &errs
	in, err := g.cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("guest: %w", err)
	}
	out, err := g.cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("guest: %w", err)
	}
	g.in = in
	begun := make(chan error)
	go func() {
		runtime.LockOSThread() // the machine dies with the thread that started it: this one stays
		err := g.cmd.Start()
		begun <- err
		if err != nil {
			return
		}
		g.read(out)
		_ = g.cmd.Wait()
		g.over()
	}()
	if err := <-begun; err != nil {
		return nil, fmt.Errorf("guest: %w; scripts/deps.sh interop installs qemu", err)
	}
	ctx, cancel := context.WithTimeout(ctx, bootTimeout)
	defer cancel()
	select {
	case <-g.ready:
		return g, nil
	case <-g.exited:
		return nil, fmt.Errorf("guest: qemu ended: %s; the guest said:\n%s", &errs, g.Console())
	case <-ctx.Done():
		g.Stop()
		return nil, fmt.Errorf("guest: did not start (%w; %v are given to it): %s; the guest said:\n%s",
			ctx.Err(), bootTimeout, &errs, g.Console())
	}
}

// nameless makes a file that is in no directory.
func nameless() (*os.File, error) {
	f, err := os.CreateTemp("", "rnicd-guest-")
	if err == nil {
		err = os.Remove(f.Name())
	}
	if err != nil {
		return nil, fmt.Errorf("guest: %w", err)
	}
	return f, nil
}

// consoleFD is where qemu finds the first of its ExtraFiles.
const consoleFD = "/proc/self/fd/3"

// arguments are qemu's. What the guest's card sends is what a wire would carry: all of its offloads
// are off.
//
// A second processor is possible but not there. Without it qemu before 8.1 (commit c914d46d0a64)
// leaves out the guest's memory barriers, as if nothing ran beside its one processor; but the card
// does, in qemu's main loop. The guest's kernel then reads too early when the card wants to be told
// of new frames, does not tell it, and the card sends nothing from then on.
func arguments(cfg Config) []string {
	a := cfg.Addr.Addr().As4()
	mac := fmt.Sprintf("52:54:%02x:%02x:%02x:%02x", a[0], a[1], a[2], a[3])
	card := "virtio-net-pci,netdev=net,romfile=,mac=" + mac
	for _, f := range strings.Fields(
		"csum gso guest_csum guest_tso4 guest_tso6 guest_ecn guest_ufo host_tso4 host_tso6 " +
			"host_ecn host_ufo") {
		card += "," + f + "=off"
	}
	return []string{
		"-accel", "tcg,thread=multi,tb-size=128", "-cpu", "Westmere-v1", "-machine",
		"q35,vmport=off,hpet=off,smbus=off,sata=off,i8042=off",
		"-m", strconv.Itoa(memoryMiB), "-smp", "1,maxcpus=2", "-nodefaults", "-no-user-config",
		"-display", "none", "-no-reboot",
		"-serial", "file:" + consoleFD, "-serial", "stdio",
		"-netdev", "tap,id=net,ifname=" + cfg.TAP + ",script=no,downscript=no,vhost=off", "-device", card,
		"-kernel", cfg.Image.Kernel, "-initrd", cfg.Image.Initramfs,
		"-append", "console=ttyS0 quiet panic=-1 mitigations=off audit=0 tsc=reliable no_timer_check " +
			"cryptomgr.notests " +
			"random.trust_cpu=on ipv6.disable=1 rnicd.addr=" + cfg.Addr.String(),
	}
}

// read takes what the agent says.
func (g *Guest) read(out io.Reader) {
	lines := bufio.NewScanner(out)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := strings.TrimRight(lines.Text(), "\r")
		if line == "agent ready" {
			close(g.ready)
			continue
		}
		name, rest, _ := strings.Cut(line, " ")
		g.mu.Lock()
		j := g.jobs[name]
		g.mu.Unlock()
		if j != nil {
			j.take(rest)
		}
	}
}

// over: qemu has ended, and with it all jobs.
func (g *Guest) over() {
	close(g.exited)
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, j := range g.jobs {
		j.end(-1)
	}
}

// Stop ends the machine.
func (g *Guest) Stop() {
	_ = g.cmd.Process.Kill()
	<-g.exited
}

// Console is the end of the kernel's messages.
func (g *Guest) Console() string {
	size, _ := g.console.Seek(0, io.SeekEnd) // what cannot be read is not there
	b := make([]byte, min(size, 4000))
	n, _ := g.console.ReadAt(b, size-int64(len(b)))
	return string(b[:n])
}

// scriptMax keeps an order within what a serial line takes in one go.
const scriptMax = 2500

// Start begins a shell script in the guest.
func (g *Guest) Start(script string) (*Job, error) {
	if len(script) > scriptMax {
		return nil, fmt.Errorf("guest: a script of %d octets, %d possible", len(script), scriptMax)
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.started++
	j := &Job{guest: g, name: "job" + strconv.Itoa(g.started), Script: script,
		changed: make(chan struct{}), done: make(chan struct{})}
	g.jobs[j.name] = j
	if _, err := fmt.Fprintf(g.in, "%s %s\n", j.name,
		base64.StdEncoding.EncodeToString([]byte(script))); err != nil {
		return nil, fmt.Errorf("guest: %w", err)
	}
	return j, nil
}

// Run runs a script to its end and returns what it printed. Any status but 0 is an error.
func (g *Guest) Run(ctx context.Context, script string) (string, error) {
	j, err := g.Start(script)
	if err != nil {
		return "", err
	}
	status, err := j.Wait(ctx)
	if err == nil && status != 0 {
		err = fmt.Errorf("guest: status %d of %q, which said:\n%s", status, script, j)
	}
	return j.String(), err
}

// tail keeps the last of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

func (t *tail) Write(b []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.text = append(t.text, b...)
	t.text = t.text[max(0, len(t.text)-2000):]
	return len(b), nil
}

func (t *tail) String() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return string(t.text)
}
