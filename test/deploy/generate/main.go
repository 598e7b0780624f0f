// Command generate writes the files of deploy/ that are made from others. It runs in the directory test.
package main

import (
	"fmt"
	"os"

	"github.com/capacitorset/liqo-broker-vk/test/deploy"
)

func main() {
	if err := deploy.Directory("../deploy").Generate(); err != nil {
		fmt.Fprintln(os.Stderr, "generate:", err)
		os.Exit(1)
	}
}
