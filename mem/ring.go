package mem

// SPSC is a bounded single-producer single-consumer ring over a power-of-two backing slice.
type SPSC[T any] struct{ buf []T }

func NewSPSC[T any](backing []T) *SPSC[T] { panic("skeleton") }

func (r *SPSC[T]) Push(v T) bool       { panic("skeleton") }
func (r *SPSC[T]) PushN(v []T) int     { panic("skeleton") }
func (r *SPSC[T]) Pop() (v T, ok bool) { panic("skeleton") }
func (r *SPSC[T]) PopN(dst []T) int    { panic("skeleton") }
func (r *SPSC[T]) Len() int            { panic("skeleton") }
func (r *SPSC[T]) Cap() int            { panic("skeleton") }

// In-place use, for frames that are copied straight into the ring: Reserve returns the next free slot (nil when full),
// Publish makes the n reserved ones visible; Peek returns the i-th oldest (nil when none), Release frees n.
func (r *SPSC[T]) Reserve(i int) *T { panic("skeleton") }
func (r *SPSC[T]) Publish(n int)    { panic("skeleton") }
func (r *SPSC[T]) Peek(i int) *T    { panic("skeleton") }
func (r *SPSC[T]) Release(n int)    { panic("skeleton") }

// MPSC is a bounded multi-producer single-consumer ring (per-slot sequence numbers, after D. Vyukov).
type MPSC[T any] struct{}

type MPSCSlot[T any] struct {
	seq uint64
	val T
}

func NewMPSC[T any](backing []MPSCSlot[T]) *MPSC[T] { panic("skeleton") }

func (r *MPSC[T]) Push(v T) bool       { panic("skeleton") }
func (r *MPSC[T]) Pop() (v T, ok bool) { panic("skeleton") }
func (r *MPSC[T]) PopN(dst []T) int    { panic("skeleton") }
func (r *MPSC[T]) Len() int            { panic("skeleton") }
func (r *MPSC[T]) Cap() int            { panic("skeleton") }

// View lays a []T of n elements over arena octets. T must hold no pointers (checked; panics), b must be aligned and large enough.
func View[T any](b []byte, n int) []T { panic("skeleton") }
