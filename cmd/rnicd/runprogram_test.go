package main

import (
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
)

// The flags of rnicd run become variables, in place of those that were there; the default is the
// kernel's sockets.
func TestRunEnvironment(t *testing.T) {
	for args, want := range map[string][]string{
		"": nil,
		"--pmd=tap --addr=10.9.0.2/24,fd09::2/64 --mtu=9000": {"RNICD_ADDR=10.9.0.2/24,fd09::2/64",
			"RNICD_MTU=9000", "RNICD_PMD=tap"},
		"--spin --no-dad --no-offload --rto-min=5ms": {"RNICD_DAD=off", "RNICD_OFFLOAD=false",
			"RNICD_TCP_RTO_MIN=5ms", "RNICD_IDLE=spin"},
	} {
		var o nicOptions
		f := pflag.NewFlagSet("run", pflag.ContinueOnError)
		o.flags(f)
		require.NoError(t, f.Parse(strings.Fields(args)))
		require.Equal(t, want, o.environ("", false), args)
	}
	require.Equal(t, []string{"A=1", "RNICD_MTU=9000"},
		override([]string{"RNICD_MTU=1500", "A=1"}, []string{"RNICD_MTU=9000"}))
	// Each flag of a device has its variable.
	var o nicOptions
	f := pflag.NewFlagSet("run", pflag.ContinueOnError)
	o.flags(f)
	f.VisitAll(func(flag *pflag.Flag) {
		if !slices.Contains([]string{"spin", "no-dad", "no-offload", "counters"}, flag.Name) {
			require.Contains(t, runVariables, flag.Name)
		}
	})
}

// UCX listens by librdmacm alone, as RoCE, unless the user has said how.
func TestRunForUCX(t *testing.T) {
	const roce, rdmacm, tcp = "RNICD_DEVICE=roce", "UCX_SOCKADDR_TLS_PRIORITY=rdmacm",
		"UCX_SOCKADDR_TLS_PRIORITY=tcp"
	for _, c := range [][2][]string{
		{{"A=1"}, {"A=1"}},
		{{"RNICD_DEVICE=iwarp"}, {"RNICD_DEVICE=iwarp"}},
		{{roce}, {roce, rdmacm}},
		{{tcp, roce}, {tcp, roce}},
	} {
		require.Equal(t, c[1], forUCX(c[0]))
	}
}

// What is wrong is told by the name that the user gave it: a flag's, or the variable's of an
// environment that was there before.
func TestRunTellsFlags(t *testing.T) {
	for want, c := range map[string]struct{ text, own string }{
		`--addr: missing`:                       {"RNICD_ADDRESSES: missing", "HOME=/"},
		`RNICD_ADDRESSES: missing`:              {"RNICD_ADDRESSES: missing", "RNICD_ADDR=1"},
		`--pmd: "tab"; --rto-min: no`:           {`RNICD_DRIVER: "tab"; RNICD_TCP_RTO_MIN: no`, ""},
		`--config and RNICD_MTU: give only one`: {"RNICD_CONFIG and RNICD_MTU: give only one", "RNICD_MTU=9"},
		`--secret-file is for --device=roce`:    {"RNICD_SECRET_FILE is for RNICD_DEVICE=roce", ""},
		`--allow: no; RNICD_CONTROL: short`: {"RNICD_ALLOW: no; RNICD_CONTROL: short",
			"RNICD_CONTROL=/x"},
		`RNICD_MTUS: unknown`: {"RNICD_MTUS: unknown", ""},
	} {
		require.Equal(t, want, flagsFor(c.text, []string{c.own}))
	}
}
