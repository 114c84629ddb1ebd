// Command kernel is the end of a goodput comparison that is the Linux kernel's TCP with an ordinary
// program on it: what every stack is measured against, and, twice over a veth pair, the floor.
package main

import (
	"context"
	"flag"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/rnicd/rnicd/bench/peers/measure"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "kernel:", err)
		os.Exit(1)
	}
}

func run() error {
	connect := flag.String("connect", "", "address to connect to")
	listen := flag.String("listen", "", "address to listen on instead")
	role := flag.String("role", string(measure.Sink), "sink or source")
	length := flag.Duration("for", 3*time.Second, "how long a source sends")
	congestion := flag.String("cc", "cubic", "congestion control")
	flag.Parse()
	d := measure.Direction(*role)
	if err := d.Check(); err != nil {
		return err
	}
	c, err := open(*connect, *listen, *congestion)
	if err != nil {
		return err
	}
	r, err := measure.Move(c, d, *length)
	if err != nil {
		return err
	}
	measure.Finish(r)
	return nil
}

// open makes the connection, by whichever side it was told.
func open(connect, listen, congestion string) (net.Conn, error) {
	const patience = 10 * time.Second
	switch {
	case connect != "" && listen == "":
		d := net.Dialer{Timeout: patience, Control: chooser(congestion)}
		return d.Dial("tcp4", connect)
	case listen != "" && connect == "":
		lc := net.ListenConfig{Control: chooser(congestion)}
		l, err := lc.Listen(context.Background(), "tcp4", listen)
		if err != nil {
			return nil, err
		}
		defer l.Close()
		if err := l.(*net.TCPListener).SetDeadline(time.Now().Add(patience)); err != nil {
			return nil, err
		}
		fmt.Println("ready")
		return l.Accept()
	}
	return nil, fmt.Errorf("want one of --connect and --listen")
}

// chooser is a Control of net.Dialer and net.ListenConfig that takes the host's own choice of
// congestion control out of the figures: BBR, for one, paces by what it takes for the path's rate,
// and then that is what is measured, whatever is at the other end. It comes before the
// handshake, for a socket that was BBR's once goes on being paced.
func chooser(name string) func(string, string, syscall.RawConn) error {
	return func(_, _ string, raw syscall.RawConn) error {
		var set error
		if err := raw.Control(func(fd uintptr) {
			set = unix.SetsockoptString(int(fd), unix.IPPROTO_TCP, unix.TCP_CONGESTION, name)
		}); err != nil {
			return err
		}
		if set != nil {
			return fmt.Errorf("--cc %s: %w; sysctl net.ipv4.tcp_available_congestion_control says "+
				"what there is", name, set)
		}
		return nil
	}
}
