// Command suites runs the test suites of Liqo and of virtual-kubelet, from their modules, in federations of the sandbox, and suites of
// this repository with other versions of Liqo and of Kubernetes. It keeps what passed in results.json; docs/compatibility.md has its tables.
//
//	go run ./suites                                all suites on all sides; hours on a small machine
//	go run ./suites -suites=liqo -sides=stock      one of them on one side
//	go run ./suites -suites=liqo -packages=reflection
//	go run ./suites -suites=versions '-versions=Liqo v1.1.2'
package main
