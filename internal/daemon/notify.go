package daemon

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Notifier reports the daemon's state to systemd (sd_notify(3)) by datagrams to the socket that the
// environment names. Without one it does nothing.
type Notifier struct{ conn net.Conn }

// NewNotifier finds the socket.
func NewNotifier() Notifier {
	path := os.Getenv("NOTIFY_SOCKET")
	if path == "" {
		return Notifier{}
	}
	// package net reads @ as the abstract namespace, as systemd does
	c, err := net.Dial("unixgram", path)
	if err != nil {
		return Notifier{}
	}
	return Notifier{c}
}

// sendTimeout bounds how long a manager that does not read holds the daemon up.
const sendTimeout = time.Second

// send has no effect if systemd no longer listens.
func (n Notifier) send(lines ...string) {
	if n.conn != nil {
		_ = n.conn.SetWriteDeadline(time.Now().Add(sendTimeout))
		_, _ = n.conn.Write([]byte(strings.Join(lines, "\n")))
	}
}

// Ready says that what was started, or reloaded, serves.
func (n Notifier) Ready(status string) { n.send("READY=1", "STATUS="+status) }

// Reloading says that a Ready follows.
func (n Notifier) Reloading() {
	var ts unix.Timespec
	_ = unix.ClockGettime(unix.CLOCK_MONOTONIC, &ts) // there is always this clock
	n.send("RELOADING=1", fmt.Sprintf("MONOTONIC_USEC=%d", ts.Nano()/1000))
}

// Stopping says that the end has begun.
func (n Notifier) Stopping(status string) { n.send("STOPPING=1", "STATUS="+status) }

// Alive is for WatchdogPeriod.
func (n Notifier) Alive() { n.send("WATCHDOG=1") }

// WatchdogPeriod is how often to call Alive: half of systemd's watchdog timeout; 0: there is none.
func WatchdogPeriod() time.Duration {
	us, err := strconv.ParseInt(os.Getenv("WATCHDOG_USEC"), 10, 64)
	pid := os.Getenv("WATCHDOG_PID")
	if err != nil || us <= 0 || pid != "" && pid != strconv.Itoa(os.Getpid()) {
		return 0
	}
	return time.Duration(us) * time.Microsecond / 2
}
