// Package hugepages maps the memory everything else lives in: arenas on 2 MiB or 1 GiB pages.
package hugepages

// PageSize is a page size in octets.
type PageSize int64

const (
	Auto     PageSize = 0 // 2 MiB when the system has enough of them, else normal pages
	Normal   PageSize = 4 << 10
	Page2MiB PageSize = 2 << 20
	Page1GiB PageSize = 1 << 30
)

// AnyNode lets the kernel choose the NUMA node.
const AnyNode = -1

// Config says what an Arena is to be made of.
type Config struct {
	Bytes      int64    // wanted size; rounded up to whole pages
	Page       PageSize // Auto, or the page size to insist on first
	Node       int      // NUMA node, or AnyNode
	Memfd      bool     // back by memfd_create so that the mapping can be shared with another process
	NoFallback bool     // fail instead of falling back to normal pages
}

// Arena is one mapping. Carve hands out pieces at start-up; nothing is ever given back singly.
type Arena struct{ mem []byte }

// New maps an arena. Falling back to normal pages is not an error: Fallback says why.
func New(cfg Config) (*Arena, error) { panic("skeleton") }

// Heap returns an arena over ordinary Go memory, for tests under -race and for callers without mmap.
func Heap(n int) *Arena { panic("skeleton") }

func (a *Arena) Bytes() []byte      { return a.mem }
func (a *Arena) PageSize() PageSize { panic("skeleton") }
func (a *Arena) Fallback() string   { panic("skeleton") } // "" when the wanted pages were had, else one line
func (a *Arena) FD() int            { panic("skeleton") } // memfd, or -1
func (a *Arena) Remaining() int     { panic("skeleton") } // octets not carved yet
func (a *Arena) Close() error       { panic("skeleton") }

// Carve takes the next n octets, aligned. Not goroutine-safe.
func (a *Arena) Carve(n, align int) ([]byte, error) { panic("skeleton") }
