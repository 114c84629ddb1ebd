package port

import (
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// A claim on a device is a listening socket in the abstract namespace, whose names belong to one
// network namespace as devices do (docs/adr/0036-claims-on-devices.md). It ends with the process,
// however that ends.
const claimPrefix = "\x00rnicd/device/"

// askersMax is how many processes may have asked for the holder of a claim, which accepts none of
// them; later ones learn only that it is held.
const askersMax = 4096

// InUseError: a process has a device that only one may have.
type InUseError struct {
	Device string
	PID    int // 0: not known, as in another PID namespace
}

func (e *InUseError) Error() string {
	who := "another process"
	if e.PID > 0 {
		who = fmt.Sprintf("process %d", e.PID)
	}
	return fmt.Sprintf("%s: %s has this device: frames would reach one of both by chance; name "+
		"another device, or end that process", e.Device, who)
}

// Claims are what a Port has for itself in its network namespace. The zero value has nothing.
type Claims struct{ fds []int }

// Claim takes what a Config's driver says that the device is, or nothing. Its error is an
// *InUseError if another process, or this one, has it.
func Claim(c *Config) (claims Claims, err error) {
	if c.Driver.Claims == nil {
		return claims, nil
	}
	for _, name := range c.Driver.Claims(c) {
		fd, err := claim(name)
		if err != nil {
			claims.Release()
			return Claims{}, err
		}
		claims.fds = append(claims.fds, fd)
	}
	return claims, nil
}

// Release gives it back.
func (c *Claims) Release() {
	for _, fd := range c.fds {
		_ = unix.Close(fd)
	}
	c.fds = nil
}

// Holder says which device of a Config another process has, as the error of Claim, or nil.
func Holder(c *Config) error {
	if c.Driver.Claims == nil {
		return nil
	}
	for _, name := range c.Driver.Claims(c) {
		if pid, held := holder(name); held {
			return &InUseError{name, pid}
		}
	}
	return nil
}

func claim(name string) (int, error) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return -1, os.NewSyscallError("socket", err)
	}
	if err = unix.Bind(fd, &unix.SockaddrUnix{Name: claimPrefix + name}); err == nil {
		err = unix.Listen(fd, askersMax) // so that another process learns which one has it
	}
	if err == nil {
		return fd, nil
	}
	_ = unix.Close(fd)
	if errors.Is(err, unix.EADDRINUSE) {
		pid, _ := holder(name)
		return -1, &InUseError{name, pid}
	}
	return -1, fmt.Errorf("%s: claiming the device: %w", name, err)
}

// holder is the process that has a claim.
func holder(name string) (pid int, held bool) {
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return 0, false
	}
	defer unix.Close(fd)
	err = unix.Connect(fd, &unix.SockaddrUnix{Name: claimPrefix + name})
	if err != nil {
		return 0, errors.Is(err, unix.EAGAIN) // others ask, too
	}
	if cred, err := unix.GetsockoptUcred(fd, unix.SOL_SOCKET, unix.SO_PEERCRED); err == nil {
		pid = int(cred.Pid)
	}
	return pid, true
}

// claimsOfTAP: one TAP. Of rnic%d the kernel makes a new one.
func claimsOfTAP(c *Config) []string {
	if strings.Contains(c.Device, "%") {
		return nil
	}
	return []string{c.Device}
}

// claimsOfDPDK are a NIC, or the interfaces that virtual devices are made on. Those without an
// interface are the process's own.
func claimsOfDPDK(c *Config) (names []string) {
	if c.PCI != "" {
		address, _, _ := strings.Cut(strings.ToLower(c.PCI), ",")
		if strings.Count(address, ":") == 1 {
			address = "0000:" + address
		}
		return []string{address}
	}
	if !wholeVdev(c) {
		return []string{c.Device}
	}
	for _, args := range append([]string{c.Device}, c.EAL...) {
		for arg := range strings.SplitSeq(args, ",") {
			if name, ok := strings.CutPrefix(arg, "iface="); ok && name != "" {
				names = append(names, name)
			}
		}
	}
	return names
}
