// Package tile runs tiles.
package tile
