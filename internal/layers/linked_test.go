package layers

import (
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// linked returns which of our packages a program links.
func linked(code map[string][]string, program string) []string {
	all := []string{program}
	for i := 0; i < len(all); i++ {
		for _, imp := range code[all[i]] {
			if !slices.Contains(all, imp) {
				all = append(all, imp)
			}
		}
	}
	return all
}

// The engine that is loaded into every C program has the verbs, their transports and drivers: no
// tool, daemon, switch or socket layer.
func TestEngineLinks(t *testing.T) {
	code, _ := imported(t)
	engine := linked(code, "verbs/cshared")
	require.Contains(t, engine, "rnic/internal/transport")
	require.Contains(t, engine, "pmd/tap")
	for _, name := range engine {
		for _, not := range []string{"cmd", "internal/daemon", "internal/tools", "internal/vswitch",
			"rsocket", "internal/sim", "bench"} {
			if name == not || strings.HasPrefix(name, not+"/") {
				t.Errorf("verbs/cshared links %s", name)
			}
		}
	}
}
