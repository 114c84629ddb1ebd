// Command kernel is the end of a goodput comparison that is the Linux kernel's TCP with an ordinary program on it: what
// every stack is measured against, and, twice over a veth pair, the floor.
package main

import (
	"flag"
	"fmt"
	"net"
	"os"
	"time"

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
	flag.Parse()
	d := measure.Direction(*role)
	if err := d.Check(); err != nil {
		return err
	}
	c, err := open(*connect, *listen)
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
func open(connect, listen string) (net.Conn, error) {
	const patience = 10 * time.Second
	switch {
	case connect != "" && listen == "":
		return net.DialTimeout("tcp4", connect, patience)
	case listen != "" && connect == "":
		l, err := net.Listen("tcp4", listen)
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
