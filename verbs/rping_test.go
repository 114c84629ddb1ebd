package verbs

import (
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"github.com/rnicd/rnicd/internal/sample"
)

// rpingWay is what rping's two ends run over: flags of rnicd run, where the server listens, and
// where its client finds it. Words in capitals are replaced.
type rpingWay struct{ name, server, client, bind, at string }

const rpingTAP = "--pmd tap --no-dad --host-addr HOST --addr OURS"

var rpingWays = []rpingWay{
	{"sockets", "", "", "LOOPBACK", "LOOPBACK"},
	{"server on our TCP, client on sockets", rpingTAP, "", "OURADDRESS", "OURADDRESS"},
	{"server on sockets, client on our TCP", "", rpingTAP, "ANY", "HOSTADDRESS"},
	{"our TCP", "--pmd memif --no-dad --socket SOCKET --role server --addr HOST",
		"--pmd memif --no-dad --socket SOCKET --addr OURS", "HOSTADDRESS", "HOSTADDRESS"},
	{"our TCP, a bad network", "--pmd memif --no-dad --socket SOCKET --role server --addr HOST",
		"--pmd memif --no-dad --socket SOCKET --addr OURS " +
			"--fault drop=0.5%,reorder=1%,dup=0.5%,seed=3", "HOSTADDRESS", "HOSTADDRESS"},
}

// rpingFamilies are what stands for those words.
var rpingFamilies = map[string]*strings.Replacer{
	"IPv4": strings.NewReplacer("LOOPBACK", "127.0.0.1", "HOSTADDRESS", "10.9.0.1", "OURADDRESS",
		"10.9.0.2", "ANY", "0.0.0.0", "HOST", "10.9.0.1/24", "OURS", "10.9.0.2/24"),
	"IPv6": strings.NewReplacer("LOOPBACK", "::1", "HOSTADDRESS", "fd09::1", "OURADDRESS", "fd09::2",
		"ANY", "::", "HOST", "fd09::1/64", "OURS", "fd09::2/64"),
}

// rping at both ends, over each transport in either role, of both families: its shortest ping, its
// usual one, and its longest. The client compares what comes back; both print each ping.
func TestRping(t *testing.T) {
	type conversation struct {
		rpingWay
		family string
		size   int
	}
	var all []conversation
	for _, way := range rpingWays {
		for family := range rpingFamilies {
			for _, size := range []int{26, 64, 3000, 65535} {
				all = append(all, conversation{way, family, size})
			}
		}
	}
	for _, x := range sample.Of(t, 6, all) {
		t.Run(fmt.Sprintf("%s/%s/%d", x.name, x.family, x.size), func(t *testing.T) {
			l := newLab(t)
			socket := filepath.Join(t.TempDir(), "memif")
			words := func(text string) string {
				return strings.ReplaceAll(rpingFamilies[x.family].Replace(text), "SOCKET", socket)
			}
			line := fmt.Sprintf("rping -v -V -C 4 -S %d -a ", x.size)
			server := l.runOn(words(x.server), "rdmacm-utils",
				strings.Fields(line+words(x.bind)+" -s")...)
			server.Expect(t, 1, "^rnicd: listening at ")
			client := l.runOn(words(x.client), "rdmacm-utils",
				strings.Fields(line+words(x.at)+" -c")...)
			bothEnd(t, client, server)
			server.Expect(t, 1, "^server ping data: rdma-ping-3: ")
			client.Expect(t, 1, "^ping data: rdma-ping-3: ")
		})
	}
}
