package image

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
)

// deb is a Debian package in the version that apt would install.
type deb struct{ name, version string }

// release is a kernel of Debian's, such as 6.1.0-44-amd64.
type release struct{ name string }

// image, headers and source are the names of its packages.
func (r release) image() string   { return "linux-image-" + r.name }
func (r release) headers() string { return "linux-headers-" + r.name }
func (r release) series() string  { return strings.Join(strings.SplitN(r.name, ".", 3)[:2], ".") }
func (r release) source() string  { return "linux-source-" + r.series() }
func (r release) packages() []string {
	common := strings.TrimSuffix(r.headers(), "-amd64") + "-common"
	return []string{r.image(), r.headers(), common, "linux-kbuild-" + r.series(), r.source()}
}

var releaseRE = regexp.MustCompile(`Depends: linux-image-([0-9]+\.[0-9]+\.\S+-amd64)`)

// kernelRelease is the kernel that Debian's metapackage stands for now.
func kernelRelease(ctx context.Context) (release, error) {
	out, err := run(ctx, "", "apt-cache", "depends", "linux-image-amd64")
	if err != nil {
		return release{}, err
	}
	m := releaseRE.FindSubmatch(out)
	if m == nil {
		return release{}, errors.New("image: apt knows no package linux-image-amd64: run apt-get " +
			"update, on Debian for amd64")
	}
	return release{string(m[1])}, nil
}

var policyRE = regexp.MustCompile(`(?m)^(\S+):\n  Installed: .*\n  Candidate: (\S+)`)

// candidates looks up the versions that apt would install.
func candidates(ctx context.Context, names []string) ([]deb, error) {
	out, err := run(ctx, "", "apt-cache", append([]string{"policy"}, names...)...)
	if err != nil {
		return nil, err
	}
	return parsePolicy(out, names)
}

// parsePolicy reads what apt-cache policy prints.
func parsePolicy(out []byte, names []string) ([]deb, error) {
	known := map[string]string{}
	for _, m := range policyRE.FindAllSubmatch(out, -1) {
		known[string(m[1])] = string(m[2])
	}
	var debs []deb
	for _, n := range names {
		v := known[n]
		if v == "" || v == "(none)" {
			return nil, fmt.Errorf("image: apt has no package %s: run apt-get update; the guest is made "+
				"of Debian 12's packages", n)
		}
		debs = append(debs, deb{n, v})
	}
	return debs, nil
}

// archive is where apt puts a downloaded package, or "" when it is not there.
func (b *builder) archive(d deb) string {
	found, _ := filepath.Glob(
		filepath.Join(b.archives, d.name+"_"+strings.ReplaceAll(d.version, ":", "%3a")+"_*.deb"))
	if len(found) == 0 {
		return ""
	}
	return found[0]
}

// download fetches what is not there yet, and drops what is no longer wanted.
func (b *builder) download(ctx context.Context) error {
	var want []string
	keep := map[string]bool{}
	for _, d := range b.debs {
		if path := b.archive(d); path != "" {
			keep[path] = true
			continue
		}
		want = append(want, d.name+"="+d.version)
	}
	have, err := filepath.Glob(filepath.Join(b.archives, "*.deb"))
	if err != nil {
		return fmt.Errorf("image: %w", err)
	}
	for _, path := range have {
		if !keep[path] {
			if err := os.Remove(path); err != nil {
				return fmt.Errorf("image: %w", err)
			}
		}
	}
	if len(want) == 0 {
		return nil
	}
	fmt.Fprintf(b.log, "image: downloading %d packages\n", len(want))
	_, err = run(ctx, b.archives, "apt-get",
		append([]string{"-q", "-o", "APT::Sandbox::User=root", "-o", "Acquire::Retries=5", "download"},
			want...)...)
	if err != nil {
		return fmt.Errorf("%w; when a package is not found any more, apt-get update finds the new one",
			err)
	}
	return nil
}

// unpack takes apart the packages: the kernel's, its headers, its source of siw, and what the guest
// runs.
func (b *builder) unpack(ctx context.Context) error {
	kernel := b.rel.packages()
	for i, d := range b.debs {
		to := "user"
		switch {
		case d.name == b.rel.source():
			continue // below
		case i == 0:
			to = "kernel"
		case i < len(kernel):
			to = "headers"
		}
		path := b.archive(d)
		if path == "" {
			return fmt.Errorf("image: apt-get download did not leave %s %s in %s", d.name,
				d.version, b.archives)
		}
		if _, err := run(ctx, "", "dpkg-deb", "--extract", path, b.dir(to)); err != nil {
			return err
		}
	}
	return b.unpackSource(ctx)
}

// siwSource is siw in the kernel's tree.
const siwSource = "drivers/infiniband/sw/siw"

// unpackSource takes siw, and nothing else, out of the package that has all of the kernel's source.
func (b *builder) unpackSource(ctx context.Context) error {
	name := b.rel.source()
	path := b.archive(b.debs[len(b.rel.packages())-1])
	if err := os.MkdirAll(b.dir("source"), 0o755); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	_, err := run(ctx, b.dir("source"), "bash", "-c", `set -o pipefail
dpkg-deb --fsys-tarfile "$1" | tar -xO "./usr/src/$2.tar.xz" | tar -xJ --strip-components=5 "$2/$3"`, "-", path, name, siwSource)
	return err
}

// run runs a command in dir and returns what it printed. An error has the end of that.
func run(ctx context.Context, dir, name string, args ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "LC_ALL=C")
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		text := strings.TrimSpace(out.String() + errs.String())
		return nil, fmt.Errorf("image: %s %s: %w: %s", name, strings.Join(args, " "), err,
			text[max(0, len(text)-2000):])
	}
	return out.Bytes(), nil
}

func inPath(tool string) bool {
	_, err := exec.LookPath(tool)
	return err == nil
}
