package main

import (
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"k8s.io/apimachinery/pkg/util/sets"
)

func TestAllMutantsCanBeMade(t *testing.T) {
	root, err := filepath.Abs("../../..")
	require.NoError(t, err)
	all := mutants()
	for _, m := range append(testedMutants(), realWorldMutants()...) {
		all = append(all, m.mutant)
	}
	for _, m := range layeredMutants() {
		files := sets.New[string]()
		for _, one := range m.all {
			require.NotContains(t, files, one.file, m.name)
			files.Insert(one.file)
			all = append(all, one)
		}
	}
	for _, m := range all {
		_, err := m.mutated(root)
		assert.NoError(t, err, m.name)
		require.NotEqual(t, m.old, m.new, m.name)
	}
}
