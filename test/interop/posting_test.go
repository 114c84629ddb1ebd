package interop

// errOf is the error of a posting call whose count does not matter.
func errOf[V any](_ V, err error) error { return err }
