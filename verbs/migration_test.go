package verbs

import (
	"bytes"
	"crypto/rand"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/netlab"
	"github.com/rnicd/rnicd/internal/skip"
)

// machine is a virtual machine of QEMU, which is told what to do by its standard input.
type machine struct {
	*netlab.Process
	t     *testing.T
	stdin io.Writer
	asked int
}

// machine starts one by rnicd run.
func (l *lab) machine(device string, args ...string) *machine {
	l.t.Helper()
	if _, err := exec.LookPath("qemu-system-x86_64"); err != nil {
		skip.Missing(l.t, "needs qemu-system-x86_64, of Debian's package qemu-system-x86")
	}
	cmd := exec.Command(filepath.Join(l.dir, "rnicd"), append([]string{"run", "--verbose", "--device",
		device, "--", "qemu-system-x86_64", "-accel", "tcg", "-m", "64", "-display", "none",
		"-nodefaults", "-qmp", "stdio"}, args...)...)
	stdin, err := cmd.StdinPipe()
	require.NoError(l.t, err)
	m := &machine{Process: l.Start(l.t, cmd), t: l.t, stdin: stdin}
	m.ask("qmp_capabilities", "")
	return m
}

// ask has it execute a command of QMP, and waits for the answer.
func (m *machine) ask(command, arguments string) {
	m.t.Helper()
	m.asked++
	_, err := fmt.Fprintf(m.stdin, `{"execute": %q, "id": %d, "arguments": {%s}}`+"\n", command,
		m.asked, arguments)
	require.NoError(m.t, err)
	m.Expect(m.t, 1, fmt.Sprintf(`^\{"return": .*"id": %d\}`, m.asked))
}

// migrated waits for the end of a migration, which succeeds.
func (m *machine) migrated() {
	m.t.Helper()
	m.Expect(m.t, 1, `"event": "MIGRATION", "data": \{"status": "completed"\}`)
}

// QEMU moves a virtual machine by RDMA: all of its memory arrives, be it registered at once or as
// it is sent.
func TestMigration(t *testing.T) {
	if leftToMakeVerbs() {
		return
	}
	const at, size = 16 << 20, 24 << 20
	memory := make([]byte, size)
	_, _ = rand.Read(memory)
	file := filepath.Join(t.TempDir(), "memory")
	require.NoError(t, os.WriteFile(file, memory, 0o600))
	for _, device := range []string{"iwarp", "roce"} {
		for _, pinned := range []string{"false", "true"} {
			t.Run(device+", pinned "+pinned, func(t *testing.T) {
				l := newLab(t)
				dump := func(m *machine) {
					t.Helper()
					to := filepath.Join(t.TempDir(), "dump")
					m.ask("pmemsave", fmt.Sprintf(`"val": %d, "size": %d, "filename": %q`, at, size, to))
					got, err := os.ReadFile(to)
					require.NoError(t, err)
					require.True(t, bytes.Equal(memory, got))
				}
				to := l.machine(device, "-S", "-incoming", "rdma:127.0.0.1:4444")
				from := l.machine(device, "-device",
					fmt.Sprintf("loader,file=%s,addr=%d,force-raw=on", file, at))
				for _, m := range []*machine{from, to} {
					m.ask("migrate-set-capabilities", `"capabilities": [
						{"capability": "events", "state": true},
						{"capability": "rdma-pin-all", "state": `+pinned+`}]`)
				}
				dump(from)
				from.ask("migrate-set-parameters", `"max-bandwidth": 10000000000`)
				from.ask("migrate", `"uri": "rdma:127.0.0.1:4444"`)
				from.migrated()
				to.migrated()
				dump(to)
				from.ask("quit", "")
				to.ask("quit", "")
				require.Zero(t, from.Wait(t), "%s", from)
				require.Zero(t, to.Wait(t), "%s", to)
			})
		}
	}
}
