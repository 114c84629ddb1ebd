package conf

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// The name that was meant is found by letters that are wrong, missing, too many or in each other's
// place; a name that is far from all is near to none.
func TestNearest(t *testing.T) {
	names := []string{"name", "driver", "page", "path", "mtu", "size", "pace"}
	for given, want := range map[string]string{
		"pgae": "page", "paeg": "page", "apge": "page", "pag": "page", "pagee": "page", "sise": "size",
		"mut": "mtu", "drivre": "driver", "dirvre": "driver", "ptah": "path", "xyzzy": "", "m": "",
	} {
		require.Equal(t, want, Nearest(given, names), given)
	}
}
