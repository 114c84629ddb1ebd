package verbs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/sample"
	"github.com/rnicd/rnicd/internal/skip"
)

// daplCases are conversations of dapltest. With -V it compares each octet, of segments whose length
// is a multiple of 64: it looks for the next one there.
var daplCases = []string{
	"T -i 100 -t 4 -w 2 client SR 8192 1 server SR 8192 1",
	"T -i 50 -t 1 -w 2 -V client RW 4096 1 server SR 256 1 client SR 256 1",
	"T -i 50 -t 2 -w 2 -V client RR 4096 1 server RW 8192 2 client SR 256 1 server SR 1000 3",
	"T -i 50 -t 4 -w 4 -V client RW 65536 1 server RR 4096 1 client SR 256 1 server SR 256 1",
	"P -m b -i 500 RW 65536 1",
	"P -m b -i 500 -p 8 RR 4096 1",
	"P -m p -i 500 -p 4 RW 100 1",
}

// uDAPL, with Debian's dapltest: by librdmacm, and by number over sockets of its own.
func TestDAPL(t *testing.T) {
	if leftToMakeVerbs() {
		return
	}
	if _, err := exec.LookPath("dapltest"); err != nil {
		skip.Missing(t, "needs dapltest, of Debian's package dapl2-utils")
	}
	file := filepath.Join(t.TempDir(), "dat.conf")
	require.NoError(t, os.WriteFile(file, []byte(
		`cma u2.0 nonthreadsafe default libdaplofa.so.2 dapl.2.0 "10.88.0.1 0" ""
scm u2.0 nonthreadsafe default libdaploscm.so.2 dapl.2.0 "rnicd0 1" ""
`), 0o600))
	t.Setenv("DAT_OVERRIDE", file)
	for _, how := range [][2]string{{"iwarp", "cma"}, {"roce", "cma"}, {"roce", "scm"}} {
		t.Run(how[0]+" "+how[1], func(t *testing.T) {
			l := newLab(t)
			l.withFabric("10.88.0.1/24")
			test := func(kind, to string, args ...string) *netlab.Process {
				return l.runOn("--device "+how[0], "dapl2-utils", append([]string{"dapltest", "-T", kind,
					"-D", how[1], to}, args...)...)
			}
			server := test("S", "-d")
			server.Expect(t, 1, `^Dapltest: Service Point Ready`)
			for _, c := range sample.Of(t, 3, daplCases) {
				kind, args, _ := strings.Cut(c, " ")
				client := test(kind, "-s10.88.0.1", strings.Fields(args)...)
				require.Zero(t, client.Wait(t), "%s\nclient:\n%s\nserver:\n%s", c, client, server)
				require.Empty(t, client.Lines("(?i)error"), "%s\nserver:\n%s", client, server)
			}
			test("Q", "-s10.88.0.1").Wait(t)
			require.Zero(t, server.Wait(t), "%s", server)
			require.Empty(t, server.Lines("(?i)error"), "%s", server)
		})
	}
}
