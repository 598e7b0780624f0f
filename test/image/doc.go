// Package image tests the container image as it is shipped: make image builds it in two clones, what it holds is
// unpacked with nothing but the standard library, and the binary runs in it, in a root directory of its own.
package image
