package mem

import (
	"fmt"
	"reflect"
	"sync"
	"unsafe"
)

// View lays a []T of n elements over arena octets. T must hold no pointers, because the garbage
// collector does not look into an arena; b must be aligned for T and large enough. It panics
// otherwise: all three are fixed when the program is written. The view is valid as long as the
// arena is mapped.
func View[T any](b []byte, n int) []T {
	t := reflect.TypeFor[T]()
	size := int(t.Size())
	switch {
	case hasPointers(t):
		panic(fmt.Sprintf("mem: View of %v, which holds pointers", t))
	case n < 0 || size == 0:
		panic(fmt.Sprintf("mem: View of %d elements of %d octets", n, size))
	case n > len(b)/size:
		panic(fmt.Sprintf("mem: View of %d elements of %d octets over %d octets", n, size, len(b)))
	}
	first := unsafe.Pointer(unsafe.SliceData(b))
	if uintptr(first)%uintptr(t.Align()) != 0 {
		panic(fmt.Sprintf("mem: View of %v at %p, must be aligned to %d", t, first, t.Align()))
	}
	return unsafe.Slice((*T)(first), n)
}

// hasPointers reports whether a value of type t holds anything the garbage collector must see.
func hasPointers(t reflect.Type) bool {
	if known, ok := pointers.Load(t); ok {
		return known.(bool)
	}
	has := lookForPointers(t)
	pointers.Store(t, has)
	return has
}

// pointers is what hasPointers found: rings of one type are made for every connection.
var pointers sync.Map // of reflect.Type to bool

func lookForPointers(t reflect.Type) bool {
	switch t.Kind() {
	case reflect.Bool, reflect.Uintptr, reflect.Float32, reflect.Float64, reflect.Complex64,
		reflect.Complex128,
		reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64,
		reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		return false
	case reflect.Array:
		return t.Len() > 0 && lookForPointers(t.Elem())
	case reflect.Struct:
		for i := range t.NumField() {
			if lookForPointers(t.Field(i).Type) {
				return true
			}
		}
		return false
	}
	return true
}
