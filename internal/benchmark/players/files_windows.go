package players

import "io"

// WantFiles makes room for so many sockets of players. Here nothing bounds them.
func WantFiles(io.Writer, int) {}
