package cli

import (
	"fmt"
	"io"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/printers"
	"sigs.k8s.io/controller-runtime/pkg/client"
)

// view is one kind of objects as get shows it.
type view struct {
	// list and one are empty objects, which say what to ask the API for.
	list client.ObjectList
	one  client.Object
	// namespace is "" for all, and for what has none.
	namespace string
	// options narrow what the API server sends; keep says it of one object, with what the server cannot do.
	options []client.ListOption
	keep    func(client.Object) bool
	columns []column
	// nothing is said when there is none, and unlike of one that was named but is not to be kept.
	nothing, unlike string
}

// column is one of a table.
type column struct {
	name string
	// wide ones are shown with -o wide only.
	wide bool
	// fleeting ones say how long ago something was, and are no change to be shown.
	fleeting bool
	cell     func(client.Object) string
}

// flusher is the tabwriter of kubectl.
type flusher interface {
	io.Writer
	Flush() error
}

// printer writes objects in the form asked for.
type printer struct {
	s       *Session
	columns []column
	// table is nil for the other forms; its widths are remembered, so that later rows are aligned with earlier ones.
	table flusher
	print printers.ResourcePrinter
	wide  bool
}

func (s *Session) printer(columns []column, q *Query) (*printer, error) {
	p := &printer{s: s, columns: columns, wide: q.Output == OutputWide}
	switch q.Output {
	case OutputTable, OutputWide:
		p.table = printers.GetNewTabWriter(s.Out)
		p.print = printers.NewTablePrinter(printers.PrintOptions{NoHeaders: q.NoHeaders, Wide: p.wide})
	case OutputJSON:
		p.print = &printers.JSONPrinter{}
	case OutputYAML:
		p.print = &printers.YAMLPrinter{}
	case OutputName:
		p.print = &printers.NamePrinter{}
	default:
		return nil, fmt.Errorf("--output=%s: use one of %s", q.Output, strings.Join(Outputs(), ", "))
	}
	return p, nil
}

// all prints the objects together; in JSON and YAML in a List, as kubectl does, unless a single one was asked for.
func (p *printer) all(objects []client.Object, single bool) error {
	_, name := p.print.(*printers.NamePrinter)
	if p.table != nil || name || single {
		return p.each(objects)
	}
	list := &metav1.List{TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "List"}, Items: []runtime.RawExtension{}}
	for _, o := range objects {
		if err := p.s.identify(o); err != nil {
			return err
		}
		list.Items = append(list.Items, runtime.RawExtension{Object: o})
	}
	return p.print.PrintObj(list, p.s.Out)
}

// each prints the objects one after the other.
func (p *printer) each(objects []client.Object) error {
	if p.table != nil {
		rows := make([]metav1.TableRow, 0, len(objects))
		for _, o := range objects {
			rows = append(rows, metav1.TableRow{Cells: p.cells(o)})
		}
		return p.rows(rows)
	}
	for _, o := range objects {
		if err := p.s.identify(o); err != nil {
			return err
		}
		if err := p.print.PrintObj(o, p.s.Out); err != nil {
			return err
		}
	}
	return nil
}

// gone prints an object that is not there any more.
func (p *printer) gone(o client.Object) error {
	if p.table == nil {
		return p.each([]client.Object{o})
	}
	cells := p.cells(o)
	for i := range p.columns {
		if p.columns[i].name == statusColumn {
			cells[i] = "Gone"
		}
	}
	return p.rows([]metav1.TableRow{{Cells: cells}})
}

func (p *printer) rows(rows []metav1.TableRow) error {
	table := &metav1.Table{Rows: rows}
	for i := range p.columns {
		definition := metav1.TableColumnDefinition{Name: p.columns[i].name, Type: "string"}
		if p.columns[i].wide {
			definition.Priority = 1
		}
		table.ColumnDefinitions = append(table.ColumnDefinitions, definition)
	}
	if err := p.print.PrintObj(table, p.table); err != nil {
		return err
	}
	return p.table.Flush()
}

func (p *printer) cells(o client.Object) []any {
	cells := make([]any, 0, len(p.columns))
	for i := range p.columns {
		cells = append(cells, p.columns[i].cell(o))
	}
	return cells
}

// mark is equal for two states of an object that look the same.
func (p *printer) mark(o client.Object) string {
	if p.table == nil {
		return o.GetResourceVersion()
	}
	var shown []string
	for i := range p.columns {
		if c := &p.columns[i]; !c.fleeting && (p.wide || !c.wide) {
			shown = append(shown, c.cell(o))
		}
	}
	return strings.Join(shown, "\t")
}
