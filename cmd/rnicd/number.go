package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rnicd/rnicd/internal/daemon/command"
	"github.com/rnicd/rnicd/internal/daemon/config"
)

// number is a flag value from least to most.
type number struct {
	to          *uint16
	least, most uint16
}

func (n *number) Type() string { return "number" }

func (n *number) String() string {
	if n.to == nil { // pflag asks a zero one
		return "0"
	}
	return strconv.Itoa(int(*n.to))
}

func (n *number) Set(text string) error {
	v, err := strconv.ParseUint(text, 10, 16)
	if err != nil || v < uint64(n.least) || v > uint64(n.most) {
		return fmt.Errorf("want %d to %d", n.least, n.most)
	}
	*n.to = uint16(v)
	return nil
}

// flagError says of a wrong flag what is wanted, in words.
func flagError(c *cobra.Command, err error) error {
	var unknown *pflag.NotExistError
	if errors.As(err, &unknown) && unknown.GetSpecifiedName() == "compat" {
		return config.Removed("--compat", "flag", "perftest")
	}
	return command.FlagError(c, err)
}
