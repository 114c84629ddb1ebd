package verbs

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/skip"
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
	cable := " " + memifCable(t)
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
			t.Parallel()
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
				server.Expect(t, 1, why) // it may hear of it after the client
			}
		})
	}
}

// Another user of the peer's host has its address, and may hear the numbers. It cannot read the
// secret, and without it gets nothing: both ends say so.
func TestAnotherUser(t *testing.T) {
	if os.Geteuid() != 0 {
		skip.Missing(t, "only root becomes another user")
	}
	l := newLab(t)
	require.NoError(t, os.Chmod(l.dir, 0o755))
	secret := secretFile(t, "the secret of one of us")
	for dir := filepath.Dir(secret); dir != filepath.Clean(os.TempDir()); dir = filepath.Dir(dir) {
		require.NoError(t, os.Chmod(dir, 0o755)) // it is the file's own mode that keeps others out
	}
	asNobody := func(flags string) *netlab.Process {
		args := append([]string{"--reuid=65534", "--regid=65534", "--clear-groups",
			filepath.Join(l.dir, "rnicd"), "run", "--verbose", "--device", "roce"}, strings.Fields(flags)...)
		return l.Start(t, exec.Command("setpriv", append(args, "--", "ibv_rc_pingpong", "-g", "0", "-n",
			"100", here.String())...))
	}
	server := l.runOn("--device roce --secret-file "+secret, "ibverbs-utils", "ibv_rc_pingpong", "-g",
		"0", "-n", "100")
	l.untilListening(perfPort)
	reader := asNobody("--secret-file " + secret)
	require.NotZero(t, reader.Wait(t), "%s", reader)
	reader.Expect(t, 1, "permission denied")
	client := asNobody("")
	require.NotZero(t, client.Wait(t), "%s", client)
	const why = "the two ends do not have the same secret"
	require.NotEmpty(t, client.Lines(why), "%s", client)
	server.Expect(t, 1, why)
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
	p.Expect(t, 1, "--secret-file is for queue pairs that are connected by number")
}
