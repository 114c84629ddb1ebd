package main

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// What rnicd once was itself is one error, whatever flags come with it, and names the program.
func TestRemovedCommands(t *testing.T) {
	for words, want := range map[string]string{
		"rping 127.0.0.1 -c 3":                      `"rping" is no command any more; .*: rnicd run -- rping -s, or `,
		"rping server --help":                       `"rping" is no command any more; .*: rnicd run -- rping -s, or `,
		"perftest --test write":                     `"perftest" is no command any more; .*: rnicd run -- ib_send_lat -R, or `,
		"perf write bw 127.0.0.1 --compat perftest": `--compat is no flag any more; .*: rnicd run -- ib_`,
		"perf server --compat=perftest":             `--compat is no flag any more; .*: rnicd run -- ib_`,
		"rstream -s 127.0.0.1":                      `"rstream" is no command any more; .*: rnicd run -- rstream, or riostream`,
		"iperf3 -s":                                 `"iperf3" is no command any more; .*: iperf3 -s, or `,
		"stream server --once":                      `"server" is no command any more; .*: iperf3 -s, or `,
		"stream client -t 5 127.0.0.1":              `"client" is no command any more; .*: iperf3 -s, or `,
	} {
		out, err := exec.Command(programPath(t), strings.Fields(words)...).CombinedOutput()
		require.Error(t, err, words)
		require.Regexp(t, "^rnicd: "+want, string(out), words)
		require.Equal(t, 1, strings.Count(string(out), "\n"), "%s: %s", words, out)
	}
	help := must(exec.Command(programPath(t), "--help").CombinedOutput())(t)
	require.NotRegexp(t, `(?m)^ +(rping|rstream|perftest|iperf3)\b`, string(help))
}
