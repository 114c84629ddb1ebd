package main

import (
	"strings"
	"testing"

	"github.com/spf13/pflag"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestCores(t *testing.T) {
	for args, want := range map[string][]int{
		"":                                   {coreNone},
		"--queues 2":                         {coreNone, coreNone},
		"--core 3 --queues 3":                {3, 4, 5},
		"--cores 2-5":                        {2, 3, 4, 5},
		"--cores 8,2-3,0":                    {8, 2, 3, 0},
		"--cores 2-3 --queues 2":             {2, 3},
		"--cores 1023":                       {1023},
		"--pmd memif --socket s --cores 1,0": {1, 0},
	} {
		var o nicOptions
		f := pflag.NewFlagSet("", pflag.ContinueOnError)
		o.flags(f)
		require.NoError(t, f.Parse(strings.Fields(args)))
		require.NoError(t, o.checkDevice(), args)
		var got []int
		for i := range o.queueCount() {
			core := must(o.coreOf(i))(t)
			got = append(got, core)
		}
		require.Equal(t, want, got, args)
	}
}

// The Pollers of a cable have a core each, of those that the process may use.
func TestCoresApart(t *testing.T) {
	var may unix.CPUSet
	require.NoError(t, unix.SchedGetaffinity(0, &may))
	server, client := coresApart()
	if may.Count() < 2 {
		require.Equal(t, [2]int{coreNone, coreNone}, [2]int{server, client})
		return
	}
	require.NotEqual(t, server, client)
	require.True(t, may.IsSet(server) && may.IsSet(client), "%d, %d of %v", server, client, may)
}
