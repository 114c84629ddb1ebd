package main

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/internal/skip"
)

// ends builds our own ends; gVisor's is a module of its own and needs the network.
func ends(t *testing.T) string {
	t.Helper()
	if os.Geteuid() != 0 {
		skip.Missing(t, "needs root: makes network namespaces and TAP devices")
	}
	bin := t.TempDir()
	out, err := exec.Command("go", "build", "-buildvcs=false", "-o", bin+"/", "../ours", "../kernel").
		CombinedOutput()
	require.NoError(t, err, "%s", out)
	return bin
}

func namespaces(t *testing.T) []string {
	out, err := exec.Command("ip", "netns").Output()
	require.NoError(t, err)
	var mine []string
	for _, line := range strings.Split(string(out), "\n") {
		if strings.HasPrefix(line, fmt.Sprintf("rnicd-peers-%d", os.Getpid())) {
			mine = append(mine, line)
		}
	}
	return mine
}

// A stream passes both ways between the kernel and our stack, and between two kernels, every octet
// of it is counted at both ends, and no namespace stays.
func TestTransfer(t *testing.T) {
	bin := ends(t)
	p := &plan{bin: bin, length: 200 * time.Millisecond}
	for _, name := range []string{"ours", "kernel"} {
		e, err := newPeer(bin, name)
		require.NoError(t, err)
		for _, c := range []cell{{1500, in, name}, {1500, out, name}, {9000, in, name},
			{9000, out, name}} {
			s, err := measureOnce(t.Context(), p, c, e)
			require.NoError(t, err, "%v", c)
			require.Positive(t, s.gbps, "%v", c)
			require.Positive(t, s.stackCPU, "%v", c)
			require.Positive(t, s.kernelCPU, "%v", c)
			require.Empty(t, namespaces(t), "%v", c)
		}
	}
}

// An end that fails is an error that names it, an end that hangs is ended, and no namespace is left
// in either case.
func TestTransferFails(t *testing.T) {
	bin := ends(t)
	p := &plan{bin: bin, length: 200 * time.Millisecond}
	c := cell{1500, in, "ours"}
	_, err := measureOnce(t.Context(), p, c, peer{name: "false", path: "/bin/false", tap: true})
	require.ErrorContains(t, err, "false ended before it was ready")
	require.Empty(t, namespaces(t))

	silent := filepath.Join(bin, "silent")
	require.NoError(t, os.WriteFile(silent, []byte("#!/bin/sh\nexec sleep 60\n"), 0o755))
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	start := time.Now()
	_, err = measureOnce(ctx, p, c, peer{name: "silent", path: silent, tap: true})
	require.ErrorContains(t, err, "silent ended before it was ready")
	require.Less(t, time.Since(start), 10*time.Second)
	require.Empty(t, namespaces(t))
}
