// Package flags has the flags that several roles of the program share, and the validation of their values.
package flags
