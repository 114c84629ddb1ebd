package main

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
)

// --version, and the command, name the source, the compiler and the drivers.
func TestVersion(t *testing.T) {
	for _, word := range []string{"--version", "version"} {
		root := newRoot()
		var out bytes.Buffer
		root.SetOut(&out)
		root.SetArgs([]string{word})
		require.NoError(t, root.Execute())
		require.Regexp(t, `^rnicd version \S+ \(go1\.\S+, linux/\w+, drivers: tap, memif(, dpdk)?\)\n$`,
			out.String())
	}
}
