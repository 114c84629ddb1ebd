// Package image makes the virtual machine that the interoperation tests talk to: a Debian kernel,
// and an initramfs with Linux's software iWARP driver (siw), the programs of rdma-core and
// perftest, and a small program of our own (guest/probe.c).
//
// Debian's kernels leave siw out, so the module is compiled here from Debian's linux-source,
// unmodified, against the headers of the same kernel; a second build of it has siw's compile-time
// switches as module parameters. Everything comes from Debian packages that are downloaded and
// unpacked into a cache, and nothing is installed. An image is named by what went into it, so that
// a new kernel, a new package or a change of these files makes a new one.
package image

import (
	"context"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// revision is part of an image's name: a change of how images are made makes a new one.
const revision = "1"

// guestFiles go into the image as they are, except for probe.c, which is compiled.
//
//go:embed guest
var guestFiles embed.FS

// packages are what the guest runs, with the libraries and headers for it.
var packages = strings.Fields(`busybox-static iproute2 rdma-core rdmacm-utils ibverbs-utils ibverbs-providers perftest
	libibverbs1 libibverbs-dev librdmacm1 librdmacm-dev libc6 libgcc-s1 libnl-3-200 libnl-route-3-200 libmnl0 libbsd0 libmd0 libcap2
	libbpf1 libelf1 zlib1g libpci3 libudev1 libibumad3 libxtables12`)

// programs of those that go into the image.
var programs = strings.Fields(`ip tc rdma rping rdma_server rdma_client ucmatose rstream riostream ib_write_bw ib_send_bw ib_read_bw
	ib_write_lat ib_send_lat ib_read_lat`)

// Image is a bootable guest.
type Image struct {
	Kernel    string // an ELF file, which qemu starts without unpacking it under emulation
	Initramfs string
	Info      string // versions of what is in it
}

// Dir is where images and downloaded packages are kept: rnicd/siw in the user's cache directory.
func Dir() (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("image: no place to keep the virtual machine: %w; set XDG_CACHE_HOME", err)
	}
	return filepath.Join(cache, "rnicd", "siw"), nil
}

// Get returns the image in dir, made again if what goes into it has changed. It says on log what
// takes long. One process at a time makes images; others wait for it.
func Get(ctx context.Context, dir string, log io.Writer) (Image, error) {
	if err := checkTools(); err != nil {
		return Image{}, err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Image{}, fmt.Errorf("image: %w", err)
	}
	unlock, err := lock(dir)
	if err != nil {
		return Image{}, err
	}
	defer unlock()
	rel, err := kernelRelease(ctx)
	if err != nil {
		return Image{}, err
	}
	debs, err := candidates(ctx, append(rel.packages(), packages...))
	if err != nil {
		return Image{}, err
	}
	name, err := nameOf(rel, debs)
	if err != nil {
		return Image{}, err
	}
	at := filepath.Join(dir, "images", name)
	if img, err := load(at); err == nil {
		return img, nil
	}
	fmt.Fprintf(log, "image: making a guest with Linux %s and siw in %s (a minute)\n", rel.name, at)
	dropLeftovers(dir)
	b := &builder{rel: rel, debs: debs, archives: filepath.Join(dir, "debs"), log: log}
	if b.work, err = os.MkdirTemp(dir, "work-"); err != nil {
		return Image{}, fmt.Errorf("image: %w", err)
	}
	defer os.RemoveAll(b.work)
	if err := b.build(ctx); err != nil {
		return Image{}, err
	}
	if err := replaceImages(b.out(), at); err != nil {
		return Image{}, err
	}
	return load(at)
}

// dropLeftovers removes what a run left that was killed while it made an image.
func dropLeftovers(dir string) {
	left, _ := filepath.Glob(filepath.Join(dir, "work-*"))
	for _, d := range left {
		_ = os.RemoveAll(d) // what cannot be removed is in no one's way
	}
}

// checkTools says what the host lacks, and which of Debian's packages has it.
func checkTools() error {
	for _, tool := range [][2]string{
		{"qemu-system-x86_64", "qemu-system-x86"}, {"make", "make"}, {"gcc", "gcc"}, {"xz", "xz-utils"},
		{"dpkg-deb", "dpkg"}, {"apt-get", "apt"}, {"ld", "binutils"}, {"tar", "tar"},
	} {
		if !inPath(tool[0]) {
			return fmt.Errorf("image: the siw guest needs %s: apt-get install %s, or "+
				"scripts/deps.sh interop", tool[0], tool[1])
		}
	}
	return nil
}

func lock(dir string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, fmt.Errorf("image: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX); err != nil {
		_ = f.Close()
		return nil, fmt.Errorf("image: lock %s: %w", dir, err)
	}
	return func() { _ = f.Close() }, nil
}

// nameOf is a hash of all that an image is made of.
func nameOf(rel release, debs []deb) (string, error) {
	h := sha256.New()
	fmt.Fprintln(h, revision, rel.name, packages, programs)
	for _, d := range debs {
		fmt.Fprintln(h, d.name, d.version)
	}
	err := fs.WalkDir(guestFiles, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		text, err := guestFiles.ReadFile(path)
		fmt.Fprintf(h, "%s %d\n%s", path, len(text), text)
		return err
	})
	return hex.EncodeToString(h.Sum(nil)[:8]), err
}

// The files of an image.
const (
	kernelFile    = "vmlinux"
	initramfsFile = "initramfs.cpio"
	infoFile      = "info"
)

func load(dir string) (Image, error) {
	img := Image{Kernel: filepath.Join(dir, kernelFile), Initramfs: filepath.Join(dir, initramfsFile)}
	for _, path := range []string{img.Kernel, img.Initramfs} {
		if _, err := os.Stat(path); err != nil {
			return img, err
		}
	}
	info, err := os.ReadFile(filepath.Join(dir, infoFile))
	img.Info = string(info)
	return img, err
}

// replaceImages puts a new image in the place of all others. A guest that runs has read its own
// already.
func replaceImages(made, at string) error {
	if err := os.RemoveAll(filepath.Dir(at)); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return fmt.Errorf("image: %w", err)
	}
	if err := os.Rename(made, at); err != nil { // whole or not at all
		return fmt.Errorf("image: %w", err)
	}
	return nil
}

// builder is one image in the making.
type builder struct {
	rel      release
	debs     []deb
	archives string // where downloaded packages are
	work     string // is removed in the end
	log      io.Writer
}

func (b *builder) out() string { return filepath.Join(b.work, "out") }
func (b *builder) dir(name ...string) string {
	return filepath.Join(append([]string{b.work}, name...)...)
}

func (b *builder) build(ctx context.Context) error {
	for _, d := range []string{b.out(), b.archives} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			return fmt.Errorf("image: %w", err)
		}
	}
	var root tree
	for _, step := range []func(context.Context) error{
		b.download,
		b.unpack,
		b.kernel,
		func(ctx context.Context) error { return b.modules(ctx, &root) },
		func(ctx context.Context) error { return b.userland(ctx, &root) },
		func(context.Context) error { return root.write(filepath.Join(b.out(), initramfsFile)) },
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	return os.WriteFile(filepath.Join(b.out(), infoFile), []byte(b.info()), 0o644)
}

// info says what the image is made of, for people and reports.
func (b *builder) info() string {
	version := func(name string) string {
		i := slices.IndexFunc(b.debs, func(d deb) bool { return d.name == name })
		return b.debs[i].version
	}
	return fmt.Sprintf("Linux %s, siw of %s %s, rdma-core %s, perftest %s", b.rel.name, b.rel.source(),
		version(b.rel.source()),
		version("rdma-core"), version("perftest"))
}
