package doctor

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/daemon/config"
	"github.com/rnicd/rnicd/internal/port"
	"github.com/rnicd/rnicd/internal/skip"
)

// rightsChild names the folder in which this test, run again as nobody, looks.
const rightsChild = "DOCTOR_RIGHTS_CHILD"

// A user that is not root is told which folder, or which file that is there, keeps the daemon from
// starting. To root all seems free: this test runs itself as nobody.
func TestRights(t *testing.T) {
	if dir := os.Getenv(rightsChild); dir != "" {
		lookAsNobody(t, dir)
		return
	}
	const nobody = 65534
	if os.Geteuid() != 0 {
		skip.Missing(t, "only root may become another user")
	}
	dir, err := os.MkdirTemp("", "doctor") // t.TempDir is closed to others
	require.NoError(t, err)
	defer os.RemoveAll(dir)
	require.NoError(t, os.Chmod(dir, 0o755))
	for _, name := range []string{"roots", "own"} {
		require.NoError(t, os.Mkdir(filepath.Join(dir, name), 0o755))
		for _, file := range []string{"theirs", "theirs.lock"} {
			require.NoError(t, os.WriteFile(filepath.Join(dir, name, file), nil, 0o644))
		}
	}
	require.NoError(t, os.Chown(filepath.Join(dir, "own"), nobody, nobody))
	child := exec.Command(copyOfThis(t, dir), "-test.run=^TestRights$", "-test.v")
	child.Dir = dir
	child.Env = append(os.Environ(), rightsChild+"="+dir)
	child.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	out, err := child.CombinedOutput()
	require.NoError(t, err, "%s", out)
	require.Contains(t, string(out), "--- PASS: TestRights/")
}

// copyOfThis is this test as a file that anybody may run.
func copyOfThis(t *testing.T, dir string) string {
	t.Helper()
	from := must(os.Open("/proc/self/exe"))(t)
	defer from.Close()
	path := filepath.Join(dir, "doctor.test")
	to, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY, 0o755)
	require.NoError(t, err)
	must(io.Copy(to, from))(t)
	require.NoError(t, to.Close())
	return path
}

func lookAsNobody(t *testing.T, dir string) {
	control := func(path string) []Finding {
		text := fmt.Sprintf("[control]\nsocket = %q\n[[port]]\nname = \"k\"\ndriver = \"kernel\"\n",
			dir+path)
		c := must(config.Parse("rnicd.toml", []byte(text), port.Builtin()))(t)
		return (&Machine{Root: "/", Config: c}).places()
	}
	capture := func(path string) []Finding { return (&Machine{Root: "/"}).capture(dir + path) }
	for name, tc := range map[string]struct {
		look       func(path string) []Finding
		path, want string // DIR is dir
	}{
		"own folder":     {control, "/own/x.sock", ""},
		"root's folder":  {control, "/roots/x.sock", "DIR/roots: permission denied: x.sock cannot"},
		"no folder":      {control, "/roots/new/x.sock", "DIR/roots: permission denied: new cannot"},
		"root's lock":    {control, "/own/theirs", "open DIR/own/theirs.lock: permission denied"},
		"own capture":    {capture, "/own/x.pcapng", ""},
		"capture folder": {capture, "/roots/x.pcapng", "DIR/roots: permission denied: x.pcapng cannot"},
		"root's capture": {capture, "/own/theirs", "capture: open DIR/own/theirs: permission denied"},
		"capture in there": {capture, "/roots/theirs",
			"capture: open DIR/roots/theirs: permission denied"},
	} {
		t.Run(name, func(t *testing.T) {
			text := ""
			for _, f := range tc.look(tc.path) {
				if f.Verdict != OK {
					text += f.Text
				}
			}
			if tc.want == "" {
				require.Empty(t, text)
				return
			}
			require.Contains(t, text, strings.ReplaceAll(tc.want, "DIR", dir))
		})
	}
}
