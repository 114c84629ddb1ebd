package port

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/rnicd/rnicd/hugepages"
	"github.com/rnicd/rnicd/pmd"
	"github.com/rnicd/rnicd/pmd/dpdk"
)

// Each option of the driver dpdk gets where it belongs; what is no option is refused.
func TestDPDKOptions(t *testing.T) {
	var c dpdk.Config
	for name, value := range map[string]string{"rx_descriptors": "512", "tx_descriptors": "256",
		"rx_buffers": "2048", "devargs": "qpairs=2,framecnt=2048"} {
		require.NoError(t, setDPDK(&c, name, value))
	}
	require.Equal(t, dpdk.Config{RxDesc: 512, TxDesc: 256, RxBufs: 2048}, c)
	for _, bad := range [][2]string{
		{"rx_desc", "1"}, {"", ""}, {"rx_descriptors", "0"}, {"rx_descriptors", "-1"},
		{"rx_buffers", "1e3"}, {"rx_buffers", "99999999"},
		{"devargs", ""}, {"devargs", "qpairs"}, {"devargs", "qpairs=2,"}, {"devargs", "qpairs= 2"},
		{"devargs", "=2"},
	} {
		require.Error(t, dpdkOption(bad[0], bad[1]), "%q", bad)
	}
}

// A driver that the program has registered gets the options of its port.
func TestRegisteredDriverHasOptions(t *testing.T) {
	var got pmd.DriverConfig
	pmd.Register(pmd.Driver{
		Name: "registered", Option: func(string, string) error { return nil },
		Open: func(c pmd.DriverConfig) (pmd.Port, error) { got = c; return nil, nil },
	})
	d, err := All().ByName("registered")
	require.NoError(t, err)
	require.NotNil(t, d.Option)
	must(d.Open(&Config{Device: "d0", Options: map[string]string{"slot": "3"}}, hugepages.Heap(1)))(t)
	require.Equal(t, map[string]string{"slot": "3"}, got.Options)
}
