package deps

import (
	_ "github.com/google/gopacket"
	_ "github.com/stretchr/testify/require"
	_ "golang.org/x/sys/unix"
	_ "pgregory.net/rapid"
)
