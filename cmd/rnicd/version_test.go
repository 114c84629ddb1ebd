package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// --version names the source, the compiler and the drivers.
func TestVersion(t *testing.T) {
	root := newRoot()
	var out bytes.Buffer
	root.SetOut(&out)
	root.SetArgs([]string{"--version"})
	require.NoError(t, root.Execute())
	require.Regexp(t, `^rnicd version \S+ \(go1\.\S+, linux/\w+, drivers: tap(, dpdk)?\)\n$`, out.String())
}
