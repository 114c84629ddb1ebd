package cdi

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"tags.cncf.io/container-device-interface/specs-go"
)

// The folders that engines read; what a later one has replaces a device of an earlier one.
const (
	StaticDir  = "/etc/cdi" // stays
	DynamicDir = "/run/cdi" // goes with the next start of the machine
)

// Dirs are both.
var Dirs = []string{StaticDir, DynamicDir}

const (
	filePrefix = "rnicd"
	fileSuffix = ".json"
	secretMark = "-secret"
)

// FileName is the name of the file of the devices that need no switch.
const FileName = filePrefix + fileSuffix

// ProgramFiles are the names of the two files of a switch's programs, of which the second has those
// with a secret, after the name of its configuration.
func ProgramFiles(config string) (open, secret string) {
	base := filepath.Base(config)
	base = filePrefix + "-" + strings.TrimSuffix(base, filepath.Ext(base))
	return base + fileSuffix, base + secretMark + fileSuffix
}

// Encode is a Spec as engines read it.
func Encode(spec *specs.Spec) ([]byte, error) {
	text, err := json.MarshalIndent(spec, "", "  ")
	return append(text, '\n'), err
}

// Write writes a file as a whole; who reads at the same time finds the old one, or none. mode is
// its mode whatever the umask. The folder is made if it is missing.
func Write(path string, spec *specs.Spec, mode fs.FileMode) error {
	text, err := Encode(spec)
	if err != nil {
		return err
	}
	dir := filepath.Dir(path)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	f, err := os.CreateTemp(dir, ".rnicd-*") // mode 0600; without .json no engine reads it
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	err = errors.Join(err, f.Chmod(mode), f.Close())
	if err == nil {
		err = os.Rename(f.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// WritePrograms writes both files of a switch's programs to a folder, and removes that which has no
// device any more. paths are the files that are there then.
func WritePrograms(dir, config string, open, secret *specs.Spec) (paths []string, err error) {
	openName, secretName := ProgramFiles(config)
	for _, f := range []struct {
		name string
		spec *specs.Spec
		mode fs.FileMode
	}{{openName, open, 0o644}, {secretName, secret, 0o600}} {
		path := filepath.Join(dir, f.name)
		if f.spec == nil {
			if err := os.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
				return paths, err
			}
			continue
		}
		if err := Write(path, f.spec, f.mode); err != nil {
			return paths, err
		}
		paths = append(paths, path)
	}
	return paths, nil
}

// File is one that was found. Err says why its devices are of no use to an engine.
type File struct {
	Path    string
	Devices []specs.Device
	Err     error
}

// Find returns our files of a folder, in the order of their names: those named as ours whose kind
// is Kind, and those that cannot be read. A folder that is not there has none.
func Find(dir string) (files []File, err error) {
	paths, err := filepath.Glob(filepath.Join(escape(dir), filePrefix+"*"+fileSuffix))
	if err != nil {
		return nil, err
	}
	for _, path := range paths {
		name := filepath.Base(path)
		if name != FileName && !strings.HasPrefix(name, filePrefix+"-") {
			continue
		}
		f := File{Path: path}
		spec, err := read(path)
		switch {
		case err != nil:
			f.Err = err
		case spec.Kind != Kind:
			continue
		default:
			f.Devices, f.Err = spec.Devices, usable(spec)
		}
		files = append(files, f)
	}
	return files, nil
}

// escape is a folder's name that filepath.Glob takes as it is.
func escape(dir string) string {
	return strings.NewReplacer(`\`, `\\`, `*`, `\*`, `?`, `\?`, `[`, `\[`).Replace(dir)
}

func read(path string) (*specs.Spec, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	spec := new(specs.Spec)
	if err := json.Unmarshal(text, spec); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return spec, nil
}

// usable looks for what an engine cannot mount, such as the libraries of a package that has gone.
func usable(spec *specs.Spec) error {
	var wrong []error
	told := map[string]bool{}
	for _, d := range spec.Devices {
		for _, m := range d.ContainerEdits.Mounts {
			if _, err := os.Stat(m.HostPath); err != nil && !told[m.HostPath] {
				told[m.HostPath] = true
				wrong = append(wrong, err)
			}
		}
	}
	return errors.Join(wrong...)
}

// Remove removes our files of a folder, or those of a configuration only, and returns their paths.
func Remove(dir, config string) (removed []string, err error) {
	files, err := Find(dir)
	if err != nil {
		return nil, err
	}
	open, secret := ProgramFiles(config)
	for _, f := range files {
		if name := filepath.Base(f.Path); config != "" && name != open && name != secret {
			continue
		}
		if err := os.Remove(f.Path); err != nil {
			return removed, err
		}
		removed = append(removed, f.Path)
	}
	return removed, nil
}
