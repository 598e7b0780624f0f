// Package flags has the flags that several roles of the program share, and what is wrong with their values.
package flags
