// Package top shows a daemon live in a terminal, from what its control socket answers.
//
//	frame.go      two looks at a daemon to the lines of a screen; pure
//	connection.go one connection in full, as ss -ti has it; the lines of status
//	top.go        the loop: looks, keys
//	terminal.go   raw mode, size, alternate screen; all given back on every way out
package top
