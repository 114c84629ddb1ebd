package port

import (
	"crypto/sha256"
	"net/netip"
	"os"
	"strings"
)

// MemifMAC is what a client of memif has as its MAC unless it is given another: a locally
// administered one, of this host, since it was started, and of the client's first address. So a
// switch knows it without being told (rnicd switch), and hosts that have one address by mistake
// have two MACs.
func MemifMAC(first netip.Addr) (mac [6]byte) {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // the same in all containers
	h := sha256.Sum256(
		[]byte("rnicd memif MAC\x00" + strings.TrimSpace(string(boot)) + "\x00" + first.String()))
	copy(mac[:], h[:])
	mac[0] = mac[0]&^1 | 2
	return mac
}
