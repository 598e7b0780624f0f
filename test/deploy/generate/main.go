// Command generate writes the generated files of deploy/. It runs in the directory test.
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
