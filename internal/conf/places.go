package conf

import (
	"net/netip"
	"strings"
)

// What follows refuses addresses and paths that no machine has: a program that is given one does
// not start. What one machine has and another has not is package doctor's to find.

const (
	// socketPathMax is what sun_path holds, less the 0 at its end.
	socketPathMax = 107
	// filePathMax is PATH_MAX, less the 0 at its end.
	filePathMax = 4095
)

// SocketPath refuses what cannot be the path of a socket.
func (v *Check) SocketPath(key, path string) bool {
	if len(path) > socketPathMax {
		v.Wrong(key, "%d octets long; a socket's path has %d at most", len(path), socketPathMax)
		return false
	}
	return v.FilePath(key, path)
}

// FilePath refuses what no file's name can be.
func (v *Check) FilePath(key, path string) bool {
	switch {
	case strings.ContainsRune(path, 0):
		v.Wrong(key, "%q: no path has a zero octet", path)
	case strings.HasSuffix(path, "/"):
		v.Wrong(key, "%q: that names a folder; want a file's path", path)
	case len(path) > filePathMax:
		v.Wrong(key, "%d octets long; a path has %d at most", len(path), filePathMax)
	default:
		return true
	}
	return false
}

// ListenAddr refuses an address that the kernel's sockets cannot listen on, or nobody connects to.
func (v *Check) ListenAddr(key, text string, a netip.Addr) bool {
	switch a = a.Unmap(); {
	case a.IsLinkLocalUnicast() && a.Is6() && a.Zone() == "": // RFC 4007 section 6
		v.Wrong(key, "%q: a link-local address is one of a link; name that, as %v%%eth0", text, a)
	// RFC 1122 section 3.2.1.3
	case a.IsMulticast(), a.Is4() && !a.IsUnspecified() && (a.As4()[0] == 0 || a.As4()[0] >= 240):
		v.Wrong(key, "%q: want the unicast address of a host, as 127.0.0.1", text)
	default:
		return true
	}
	return false
}
