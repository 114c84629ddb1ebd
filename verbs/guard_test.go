package verbs

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"
)

// secretFile is a file with a secret.
func secretFile(t *testing.T, text string) string {
	t.Helper()
	file := filepath.Join(t.TempDir(), "secret")
	require.NoError(t, os.WriteFile(file, []byte(text+"\n"), 0o600))
	return file
}

// bothWays are flags of the two ends of a conversation.
func bothWays(t *testing.T) map[string][2]string {
	cable := " --pmd memif --no-dad --socket " + filepath.Join(t.TempDir(), "memif")
	return map[string][2]string{
		"sockets": {"--device roce", "--device roce"},
		"memif": {"--device roce" + cable + " --role server --addr 10.9.0.1/24",
			"--device roce" + cable + " --addr 10.9.0.2/24"},
	}
}

// Programs that have the same secret talk; of two that do not both ends say so. The server's may
// end before it has told its number.
func TestSecretsOfPrograms(t *testing.T) {
	one, other := secretFile(t, "the secret of one of us"), secretFile(t, "the secret of another")
	pingpong := numbered{"ibv_rc_pingpong -g 0 -n 100", perfPort, "ibverbs-utils", `^100 iters in `}
	for way, flags := range bothWays(t) {
		t.Run(way, func(t *testing.T) {
			for _, secrets := range [][2]string{{one, one}, {one, other}, {one, ""}, {"", other}} {
				l := newLab(t)
				for i, file := range secrets {
					if file != "" {
						secrets[i] = " --secret-file " + file
					}
				}
				server := l.runOn(flags[0]+secrets[0], pingpong.need, "ibv_rc_pingpong", "-g", "0", "-n", "100")
				l.untilListening(pingpong.port)
				client := l.runOn(flags[1]+secrets[1], pingpong.need, "ibv_rc_pingpong", "-g", "0", "-n",
					"100", here.String())
				if secrets[0] == secrets[1] {
					requireNumbered(t, pingpong, server, client)
					continue
				}
				require.NotZero(t, client.Wait(t), "%s", client)
				const why = "the two ends do not have the same secret"
				require.NotEmpty(t, client.Lines(why), "%s", client)
				require.NotEmpty(t, server.Lines(why), "%s", server)
			}
		})
	}
}

// A program connects to no address that is not allowed, and says so; one that asks it from there is
// refused, and told so, by librdmacm, too.
func TestAllowOfPrograms(t *testing.T) {
	for way, flags := range bothWays(t) {
		t.Run(way, func(t *testing.T) {
			l := newLab(t)
			server := l.runOn(flags[0]+" --allow 192.0.2.0/24,fd00::/8", "ibverbs-utils",
				"ibv_rc_pingpong", "-g", "0")
			l.untilListening(perfPort)
			client := l.runOn(flags[1], "ibverbs-utils", "ibv_rc_pingpong", "-g", "0", here.String())
			require.NotZero(t, client.Wait(t), "%s", client)
			require.NotZero(t, server.Wait(t), "%s", server)
			server.Expect(t, 1, "the address is not allowed")
		})
	}
	l := newLab(t)
	server := l.runOn("--allow 192.0.2.0/24", "rdmacm-utils", "rping", "-s", "-a", here.String())
	server.Expect(t, 1, "^rnicd: listening at ")
	client := l.run("rdmacm-utils", "rping", "-c", "-C", "1", "-a", here.String())
	require.NotZero(t, client.Wait(t), "%s", client)
	server.Expect(t, 1, "^rnicd: refused .*the address is not allowed")

	p := l.runOn("--secret-file "+secretFile(t, "the secret of one of us"), "ibverbs-utils",
		"ibv_devinfo")
	require.NotZero(t, p.Wait(t))
	p.Expect(t, 1, "RNICD_SECRET_FILE is for queue pairs that are connected by number")
}
