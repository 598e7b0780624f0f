// Package admission checks that the admission policies of deploy/guard.yaml are in force in the broker's cluster.
package admission
