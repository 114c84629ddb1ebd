package interop

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/rnicd/rnicd/test/interop/guest"
	"github.com/rnicd/rnicd/test/interop/image"
)

var (
	live = flag.Bool("live", false,
		"talk to Linux siw in a virtual machine: needs root and the packages of scripts/deps.sh interop")
	raceTries = flag.Int("tries", 5, "how often TestSiwAcceptRace tries, each way")
	quick     = flag.Bool("quick", false,
		"of perftest's cells some, drawn anew")
	capture = flag.String("capture", "",
		"write all that passes the guest's device to this pcap file")
)

// The network of the tests: a bridge with two TAPs, our stack on one and the guest on the
// other. The kernel's sockets have the bridge's address.
const (
	bridge   = "br0"
	guestTAP = "vm0"
	ourTAP   = "ours0"
)

var (
	ourAddr    = netip.MustParsePrefix("10.9.0.1/24")
	guestAddr  = netip.MustParsePrefix("10.9.0.2/24")
	bridgeAddr = netip.MustParsePrefix("10.9.0.254/24")
)

// vm is the guest that all tests talk to, one after another.
var vm *guest.Guest

// inside is set for the process that runs the tests, to where our command is: the first one starts
// it in a network namespace of its own.
const inside = "RNICD_INTEROP_INSIDE"

func TestMain(m *testing.M) {
	flag.Parse()
	switch {
	case !*live:
		os.Exit(m.Run())
	case os.Getenv(inside) == "":
		os.Exit(enclose())
	}
	os.Exit(within(m))
}

// enclose runs this program again in a network namespace without a way out, which ends with it and
// all that it has started.
func enclose() int {
	if os.Geteuid() != 0 {
		fmt.Fprintln(os.Stderr, "interop: needs root: it makes a network namespace, a bridge and "+
			"TAP devices")
		return 1
	}
	dir, err := os.MkdirTemp("", "interop")
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		return 1
	}
	defer os.RemoveAll(dir)
	command := filepath.Join(dir, "rnicd")
	if err := errors.Join(makeImage(), makeCommand(command)); err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		return 1
	}
	runtime.LockOSThread() // the child dies with the thread that started it
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, os.Interrupt, syscall.SIGTERM)
	cmd := exec.Command(os.Args[0], os.Args[1:]...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"="+command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: syscall.CLONE_NEWNET,
		Pdeathsig: syscall.SIGKILL}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, "interop: no network namespace:", err)
		return 1
	}
	go func() {
		for sig := range ended {
			_ = cmd.Process.Signal(sig)
		}
	}()
	err = cmd.Wait()
	var status *exec.ExitError
	switch {
	case errors.As(err, &status):
		return max(status.ExitCode(), 1)
	case err != nil:
		fmt.Fprintln(os.Stderr, "interop:", err)
		return 1
	}
	return 0
}

// makeImage has the image made where the network still has a way out: its packages are downloaded.
func makeImage() error {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	cache, err := image.Dir()
	if err == nil {
		_, err = image.Get(ctx, cache, os.Stdout)
	}
	return err
}

// makeCommand builds our command, here because the modules it is made of may have to be downloaded,
// too.
func makeCommand(path string) error {
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", path,
		"github.com/rnicd/rnicd/cmd/rnicd").CombinedOutput()
	if err != nil {
		return fmt.Errorf("our command: %w\n%s", err, out)
	}
	return nil
}

// within runs the tests beside a guest.
func within(m *testing.M) int {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	end, err := setUp(ctx)
	over := sync.OnceFunc(end)
	defer over()
	if err != nil {
		fmt.Fprintln(os.Stderr, "interop:", err)
		return 1
	}
	code := make(chan int, 1)
	go func() { code <- m.Run() }()
	select {
	case c := <-code:
		over()
		if c == 0 && *capture != "" {
			if err := dissect(*capture); err != nil {
				fmt.Fprintln(os.Stderr, "interop:", err)
				return 1
			}
		}
		return c
	case <-ctx.Done():
		fmt.Fprintln(os.Stderr, "interop: interrupted")
		return 1
	}
}

// setUp makes the network and boots the guest. end, never nil, undoes it.
func setUp(ctx context.Context) (end func(), err error) {
	end = func() {}
	cache, err := image.Dir()
	if err != nil {
		return end, err
	}
	img, err := image.Get(ctx, cache, os.Stdout)
	if err != nil {
		return end, err
	}
	for _, args := range []string{
		"link set lo up",
		"link add " + bridge + " type bridge forward_delay 0 stp_state 0 mcast_snooping 0",
		"addr add " + bridgeAddr.String() + " dev " + bridge,
		"link set " + bridge + " up",
		"tuntap add dev " + guestTAP + " mode tap",
		"link set " + guestTAP + " master " + bridge + " up",
	} {
		if err := ip(args); err != nil {
			return end, err
		}
	}
	dump, err := startCapture()
	if err != nil {
		return end, err
	}
	begin := time.Now()
	vm, err = guest.Boot(ctx, guest.Config{Image: img, TAP: guestTAP, Addr: guestAddr})
	if err != nil {
		return dump, err
	}
	fmt.Printf("interop: the guest is up after %.1f s: %s\n", time.Since(begin).Seconds(), img.Info)
	return func() { vm.Stop(); dump() }, nil
}

// startCapture writes the pcap file, if one is wanted.
func startCapture() (end func(), err error) {
	if *capture == "" {
		return func() {}, nil
	}
	path, err := filepath.Abs(*capture)
	if err != nil {
		return nil, err
	}
	cmd := exec.Command("tcpdump", "-i", guestTAP, "-U", "-n", "-Z", "root", "--immediate-mode", "-w",
		path, "tcp")
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("interop: %w; scripts/deps.sh interop installs tcpdump", err)
	}
	return func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	}, nil
}

func ip(args string) error {
	if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
		return fmt.Errorf("ip %s: %w: %s; scripts/deps.sh interop installs iproute2", args, err, out)
	}
	return nil
}
