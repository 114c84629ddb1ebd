package cc

import (
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

func TestByName(t *testing.T) {
	require.Equal(t, "cubic dctcp reno", strings.Join(Names(), " "))
	for _, name := range Names() {
		a, err := ByName(name)
		require.NoError(t, err)
		require.Equal(t, name, a.Name())
	}
	_, err := ByName("bbr")
	require.ErrorContains(t, err, `"bbr" is not known; choose one of cubic, dctcp, reno`)
}

func TestOnlyDCTCPNeedsExactECN(t *testing.T) {
	for _, a := range algorithms {
		e, ok := a.(ExactECN)
		if (ok && e.ExactECN()) != (a.Name() == "dctcp") {
			t.Errorf("%s: ExactECN %v", a.Name(), ok)
		}
	}
}

// 100,000 connections have a State each.
func TestStateIsSmall(t *testing.T) {
	require.LessOrEqual(t, unsafe.Sizeof(State{}), uintptr(128))
}
