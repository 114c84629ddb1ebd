package tap

import (
	"crypto/hmac"
	"crypto/sha256"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// machineIDs are where a host keeps its identity, machine-id(5); the first that can be read counts.
var machineIDs = []string{"/etc/machine-id", "/var/lib/dbus/machine-id"}

// hostID is what this host is known by, the same from start to start: its machine id and its name,
// as clones of one image often differ in the name alone. Empty: it has neither.
func hostID() string {
	id := ""
	for _, path := range machineIDs {
		if b, err := os.ReadFile(path); err == nil {
			if id = strings.TrimSpace(string(b)); id != "" && id != "uninitialized" {
				break
			}
			id = ""
		}
	}
	name, _ := os.Hostname()
	if id == "" && (name == "localhost" || name == "(none)") { // everybody's name
		return ""
	}
	if id == "" && name == "" {
		return ""
	}
	return id + "\x00" + name
}

// StableMAC is the default of Config.MAC, for other drivers' devices of the kernel in the network
// namespace of the calling thread; ok is false on a host without identity.
func StableMAC(name, seed string) (mac [6]byte, ok bool) {
	host := hostID()
	if ns := netnsName(); ns != "" {
		seed += "\x00" + ns
	}
	return stableMAC(host, name, seed), host != ""
}

// netnsNames is where ip-netns(8) keeps the names of network namespaces.
var netnsNames = "/run/netns"

// netnsName is the name of the calling thread's network namespace, empty if it has none. Unlike
// its number it is the same from start to start.
func netnsName() string {
	var own, other unix.Stat_t
	if unix.Stat("/proc/thread-self/ns/net", &own) != nil {
		return ""
	}
	names, _ := os.ReadDir(netnsNames)
	for _, e := range names {
		if unix.Stat(filepath.Join(netnsNames, e.Name()), &other) == nil && other.Dev == own.Dev &&
			other.Ino == own.Ino {
			return e.Name()
		}
	}
	return ""
}

// stableMAC makes a locally administered unicast address of a host, a device's name and a seed. The
// machine id is not to be told to the network, machine-id(5): it is the key of a hash of which 46
// bits are shown.
func stableMAC(host, name, seed string) (mac [6]byte) {
	h := hmac.New(sha256.New, []byte(host))
	h.Write([]byte("rnicd tap MAC\x00" + name + "\x00" + seed))
	copy(mac[:], h.Sum(nil))
	mac[0] = mac[0]&^1 | 2
	return mac
}
