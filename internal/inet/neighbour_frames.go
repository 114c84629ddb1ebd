package inet

// frameStore keeps the frames inside a Neighbours: a fixed number of nodes, each in exactly one
// list (free, ready, dropped, or the waiting list of an entry). Lists are first in, first out. Node
// numbers are index + 1, so that the zero frameList is empty.
type frameStore[T any] struct {
	nodes          []frameNode[T]
	free           frameList
	ready, dropped frameList
	held           int // nodes that are not free
}

type frameNode[T any] struct {
	frame T
	mac   MAC // in ready
	next  uint32
}

// frameList is a singly linked list of nodes.
type frameList struct {
	head, tail uint32
	count      uint32
}

func (f *frameStore[T]) init(framesMax int) {
	f.nodes = make([]frameNode[T], framesMax)
	for k := range f.nodes {
		f.append(&f.free, uint32(k+1))
	}
}

func (f *frameStore[T]) append(l *frameList, k uint32) {
	f.nodes[k-1].next = 0
	if l.count == 0 {
		l.head = k
	} else {
		f.nodes[l.tail-1].next = k
	}
	l.tail = k
	l.count++
}

// pop returns the first node; l must not be empty.
func (f *frameStore[T]) pop(l *frameList) uint32 {
	k := l.head
	l.head = f.nodes[k-1].next
	l.count--
	return k
}

// push stores frame at the end of l; false when the store is full.
func (f *frameStore[T]) push(l *frameList, frame T) bool {
	if f.free.count == 0 {
		return false
	}
	k := f.pop(&f.free)
	f.nodes[k-1].frame = frame
	f.append(l, k)
	f.held++
	return true
}

// take removes the first frame of l from the store.
func (f *frameStore[T]) take(l *frameList) (frame T, mac MAC, ok bool) {
	if l.count == 0 {
		return frame, mac, false
	}
	k := f.pop(l)
	node := &f.nodes[k-1]
	frame, mac = node.frame, node.mac
	*node = frameNode[T]{} // T may hold pointers
	f.append(&f.free, k)
	f.held--
	return frame, mac, true
}

// release moves all of l to ready, for mac. At most QueueMax frames.
func (f *frameStore[T]) release(l *frameList, mac MAC) {
	for l.count > 0 {
		k := f.pop(l)
		f.nodes[k-1].mac = mac
		f.append(&f.ready, k)
	}
}

// displace moves the first of l to dropped.
func (f *frameStore[T]) displace(l *frameList) { f.append(&f.dropped, f.pop(l)) }

// drop moves all of l to dropped.
func (f *frameStore[T]) drop(l *frameList) {
	for l.count > 0 {
		f.displace(l)
	}
}
