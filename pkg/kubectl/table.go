package kubectl

import (
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// view defines how get reads and shows one kind of objects.
type view struct {
	// list and one are empty objects of the kind.
	list client.ObjectList
	one  client.Object
	// namespace is "" for all namespaces, and for kinds without.
	namespace string
	// options are the selectors for the API server; matches also checks the fields that it cannot select by.
	options []client.ListOption
	matches func(client.Object) bool
	columns []column
	// nothing is printed if no object matches; unmatched is the error of a named object that does not.
	nothing, unmatched string
}

type column struct {
	name string
	// wide columns are shown with -o wide only.
	wide bool
	cell func(client.Object) string
}

// columnsOf returns functions that make columns of one kind of objects: of for every output, wide for -o wide only.
func columnsOf[O client.Object]() (of, wide func(name string, cell func(O) string) column) {
	of = func(name string, cell func(O) string) column {
		return column{name: name, cell: func(o client.Object) string {
			object, ok := o.(O)
			if !ok {
				return unknown
			}
			return cell(object)
		}}
	}
	wide = func(name string, cell func(O) string) column {
		c := of(name, cell)
		c.wide = true
		return c
	}
	return of, wide
}

func (s *Session) print(v *view, q *Query, objects []client.Object) error {
	switch q.Output {
	case outputJSON:
		return s.printObjects(&printers.JSONPrinter{}, objects, len(q.Names) != 1)
	case outputYAML:
		return s.printObjects(&printers.YAMLPrinter{}, objects, len(q.Names) != 1)
	case outputName:
		return s.printObjects(&printers.NamePrinter{}, objects, false)
	}
	if len(objects) == 0 {
		_, err := fmt.Fprintln(s.Err, v.nothing)
		return err
	}
	table := printers.GetNewTabWriter(s.Out)
	printer := printers.NewTablePrinter(printers.PrintOptions{NoHeaders: q.NoHeaders, Wide: q.Output == outputWide})
	if err := printer.PrintObj(tableOf(v.columns, objects), table); err != nil {
		return err
	}
	return table.Flush()
}

// printObjects writes the objects one after the other, or in a List, as kubectl does.
func (s *Session) printObjects(to printers.ResourcePrinter, objects []client.Object, inList bool) error {
	list := &metav1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: []runtime.RawExtension{}}
	for _, o := range objects {
		if err := s.identify(o); err != nil {
			return err
		}
		if inList {
			list.Items = append(list.Items, runtime.RawExtension{Object: o})
		} else if err := to.PrintObj(o, s.Out); err != nil {
			return err
		}
	}
	if inList {
		return to.PrintObj(list, s.Out)
	}
	return nil
}

func tableOf(columns []column, objects []client.Object) *metav1.Table {
	table := &metav1.Table{}
	for _, c := range columns {
		definition := metav1.TableColumnDefinition{Name: c.name, Type: "string"}
		if c.wide {
			definition.Priority = 1
		}
		table.ColumnDefinitions = append(table.ColumnDefinitions, definition)
	}
	for _, o := range objects {
		cells := make([]any, 0, len(columns))
		for _, c := range columns {
			cells = append(cells, shown(c.cell(o)))
		}
		table.Rows = append(table.Rows, metav1.TableRow{Cells: cells})
	}
	return table
}
