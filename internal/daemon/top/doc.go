// Package top shows a daemon, or a switch, live in a terminal, from what its control socket
// answers.
//
//	frame.go      formats the difference of two states as the lines of a screen
//	connection.go one connection in full, as ss -ti has it; the lines of status
//	switch.go, switchlive.go   a switch: the lines of status; its ports and threads
//	top.go        the loop: queries, keys
//	terminal.go   raw mode, size, alternate screen; restored on every way out
package top
