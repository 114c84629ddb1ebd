package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/spf13/cobra"
)

// The libraries of package verbs; the first loads the second, which stands beside it.
const (
	verbsLibrary  = "librnicd_verbs.so"
	engineLibrary = "librnicd_engine.so"
)

func newRun() *cobra.Command {
	var lib string
	c := &cobra.Command{
		Use:   "run [--lib DIR] -- PROGRAM [ARGUMENT...]",
		Short: "Run a program that uses libibverbs and librdmacm, as it is, over this host's sockets",
		Long: `run starts a program that was written for libibverbs and librdmacm, as its distribution ships it, on a host that needs no
RDMA device and no rights. The program finds one device, rnicd0, which speaks iWARP over the kernel's sockets:

  rnicd run -- rping -s -a 127.0.0.1
  rnicd run -- rping -c -a 127.0.0.1 -C 3

The program's own options come after "--". It becomes this process: signals and its exit status are its own. The two
libraries, ` + verbsLibrary + ` and ` + engineLibrary + `, are looked for beside rnicd, and in ../lib/rnicd and ../lib
from there.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(_ *cobra.Command, args []string) error {
			return runProgram(lib, args)
		},
	}
	c.Flags().StringVar(&lib, "lib", "", "the directory of the two libraries")
	c.Flags().SetInterspersed(false)
	return c
}

// runProgram makes this process the program. It returns only with an error.
func runProgram(lib string, args []string) error {
	library, err := findLibrary(lib)
	if err != nil {
		return err
	}
	path, err := exec.LookPath(args[0])
	if err != nil {
		return err
	}
	err = syscall.Exec(path, args, preload(os.Environ(), library))
	return fmt.Errorf("run %s: %w", path, err)
}

// findLibrary is where verbsLibrary is.
func findLibrary(dir string) (string, error) {
	dirs := []string{dir}
	if dir == "" {
		self, err := os.Executable()
		if err == nil {
			self, err = filepath.EvalSymlinks(self)
		}
		if err != nil {
			return "", err
		}
		beside := filepath.Dir(self)
		dirs = []string{beside, filepath.Join(beside, "../lib/rnicd"), filepath.Join(beside, "../lib")}
	}
	for _, d := range dirs {
		path, err := filepath.Abs(filepath.Join(d, verbsLibrary))
		if err != nil {
			return "", err
		}
		switch _, err := os.Stat(path); {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case err != nil:
			return "", err
		}
		if _, err := os.Stat(filepath.Join(filepath.Dir(path), engineLibrary)); err != nil {
			return "", fmt.Errorf("%s is there, %s is not beside it: %w", path, engineLibrary, err)
		}
		return path, nil
	}
	return "", fmt.Errorf("%s not found in %s; make verbs builds it, --lib says where it is", verbsLibrary, strings.Join(dirs, ", "))
}

// preload is env with the library first among those that are preloaded.
func preload(env []string, library string) []string {
	const name = "LD_PRELOAD="
	out := make([]string, 0, len(env)+1)
	for _, v := range env {
		if rest, ok := strings.CutPrefix(v, name); ok {
			if rest != "" {
				library += ":" + rest
			}
			continue
		}
		out = append(out, v)
	}
	return append(out, name+library)
}
