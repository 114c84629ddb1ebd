package verbs

import (
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/skip"
)

// The device has files in /sys/class and /dev, by every function that looks for them; nothing else
// is changed.
func TestPaths(t *testing.T) {
	l := newLab(t)
	flags := []string{"-libverbs", "-lpthread", "-Wno-nonnull"}
	p := l.asRoCE(l.compileAlone("paths", flags...), "lo")
	allWell(t, p)

	// Before the library's constructor ran.
	early := l.compileAlone("paths", append(flags, "-shared", "-fPIC", "-DEARLY")...)
	cmd := exec.Command("/bin/true")
	cmd.Env = append(os.Environ(), "RNICD_DEVICE=roce",
		"LD_PRELOAD="+filepath.Join(l.dir, "librnicd_verbs.so")+":"+early)
	p = l.Start(t, cmd)
	require.Zero(t, p.Wait(t), "%s", p)
	p.Expect(t, 1, "^early$")
}

// Programs that read them find what they show.
func TestProgramsThatReadPaths(t *testing.T) {
	l := newLab(t)
	for _, x := range []struct {
		need, want string
		args       []string
	}{
		{"infiniband-diags", `State: Active`, []string{"ibstat"}},
		{"infiniband-diags", `state:\s+4: ACTIVE`, []string{"ibstatus"}},
		{"ucx-utils", `Transport: rc_verbs`, []string{"ucx_info", "-d"}},
		{"coreutils", `^gids$`, []string{"ls", "/sys/class/infiniband/rnicd0/ports/1"}},
		{"coreutils", `^0000:0000:0000:0000:0000:ffff:7f00:0001$`,
			[]string{"cat", "/sys/class/infiniband/rnicd0/ports/1/gids/0"}},
		{"findutils", `^/sys/class/infiniband/rnicd0/ports/1/state$`,
			[]string{"find", "/sys/class/infiniband", "-name", "state"}},
		{"dash", `^seen$`, []string{"sh", "-c", "for d in /sys/class/infiniband/*; do " +
			"[ -c /dev/infiniband/uverbs0 ] && [ -d $d/ports/1 ] && echo seen; done"}},
	} {
		t.Run(x.args[0], func(t *testing.T) {
			if _, err := exec.LookPath(x.args[0]); err != nil {
				skip.Missing(t, "needs %s, of Debian's package %s", x.args[0], x.need)
			}
			p := l.asRoCE(x.args...)
			require.Zero(t, p.Wait(t), "%s", p)
			p.Expect(t, 1, x.want)
		})
	}
}

// As an RNIC it has them as well.
func TestPathsOfAnRNIC(t *testing.T) {
	l := newLab(t)
	p := l.run("coreutils", "cat", "/sys/class/infiniband/rnicd0/node_type")
	require.Zero(t, p.Wait(t), "%s", p)
	require.Equal(t, "4: RNIC\n", p.String())
	p = l.run("coreutils", "ls", "/sys/class/infiniband/rnicd0/device/net")
	require.Zero(t, p.Wait(t), "%s", p)
	require.Equal(t, "lo\n", p.String())
	p = l.run("coreutils", "cat", "/sys/class/infiniband/rnicd0/ports/1/gid_attrs/ndevs/0")
	require.Zero(t, p.Wait(t), "%s", p)
	require.Equal(t, "lo\n", p.String())
	p = l.run("coreutils", "cat", "/sys/class/infiniband/rnicd0/ports/1/gid_attrs/ndevs/1")
	require.NotZero(t, p.Wait(t), "%s", p)
}
