package netlab

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
)

// builtFolder is where make test has built rnicd and the libraries of verbs, once for the tests of
// all packages; empty if nobody has, and each package builds its own.
func builtFolder() string { return os.Getenv("RNICD_BUILT") }

// BuildProgram puts rnicd into dir. root is the repository's.
func BuildProgram(root, dir string, flags ...string) error {
	if built := builtFolder(); built != "" {
		return copyTo(dir, filepath.Join(built, "rnicd"))
	}
	args := append([]string{"build", "-buildvcs=false", "-o", dir + "/"}, flags...)
	return run(exec.Command("go", append(args, root+"/cmd/rnicd")...))
}

// BuildLibraries puts the libraries of verbs into dir. root is the repository's.
func BuildLibraries(root, dir string) error {
	const shim, engine = "librnicd_verbs.so", "librnicd_engine.so"
	if built := builtFolder(); built != "" {
		return copyTo(dir, filepath.Join(built, shim), filepath.Join(built, engine),
			filepath.Join(built, "standin"))
	}
	var building sync.WaitGroup // compilers and linkers leave cores idle, one after the other
	var errs [2]error
	building.Go(func() {
		errs[0] = run(exec.Command(root+"/verbs/shim/build.sh", filepath.Join(dir, shim)))
	})
	building.Go(func() {
		errs[1] = run(exec.Command(root+"/verbs/cshared/build.sh", filepath.Join(dir, engine)))
	})
	building.Wait()
	return errors.Join(errs[:]...)
}

// copyTo copies by another program, so that go test sees no change in a new build of the same
// sources.
func copyTo(dir string, paths ...string) error {
	return run(exec.Command("cp", append([]string{"-a", "-t", dir}, paths...)...))
}

func run(cmd *exec.Cmd) error {
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%v: %w\n%s", cmd, err, out)
	}
	return nil
}
