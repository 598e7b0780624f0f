// Package cli shows and changes the federation for people at a terminal, in the way of kubectl: it speaks with the API
// server only, by the rights of whoever asks.
package cli
