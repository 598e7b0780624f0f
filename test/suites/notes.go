package main

// note is why tests do not pass on some sides.
type note struct {
	suite string
	// test is a part of "package: test".
	test  string
	sides []string
	why   string
}

var notes = []note{}
