package stack

import "github.com/rnicd/rnicd/mem"

// dead are Bufs that nobody uses any more. They are freed together: at the latest when the batch is
// next offered to the device.
type dead struct {
	pool *mem.Pool
	bufs []mem.Buf
}

func newDead(cfg *Config) dead {
	return dead{pool: cfg.Pool, bufs: make([]mem.Buf, 0, cfg.BurstMax)}
}

// add frees b, together with others.
func (d *dead) add(b mem.Buf) {
	if len(d.bufs) == cap(d.bufs) {
		d.free()
	}
	d.bufs = append(d.bufs, b)
}

func (d *dead) free() {
	if len(d.bufs) > 0 {
		d.pool.FreeN(d.bufs)
		d.bufs = d.bufs[:0]
	}
}
