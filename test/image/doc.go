// Package image tests the container image as it is shipped: make image builds it in two clones, the test unpacks it
// with only the standard library, and the binary runs in a root directory with its files.
package image
