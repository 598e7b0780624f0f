import { useLayoutEffect } from './ui.js';

/**
 * Keeps the keyboard's place when a row goes that has the focus: it is in the next row that stays, or else at the title.
 * @param {{current: HTMLTableRowElement}} row
 * @param {string} title the id of the heading above the table
 */
export function useSuccessor(row, title) {
  useLayoutEffect(() => () => {
    const gone = row.current;
    const focused = document.activeElement?.closest('tr');
    const details = focused?.matches('.details') ? focused.previousElementSibling : null;
    if (gone !== focused && gone !== details) {
      return;
    }
    const rows = [...gone.parentElement.rows];
    const at = rows.indexOf(gone);
    // Which rows stay is known when all of them are drawn. The first button of a row, unlike a switch, changes nothing.
    queueMicrotask(() => {
      const next = [...rows.slice(at), ...rows.slice(0, at).reverse()].find((one) => one.isConnected);
      (next?.querySelector('button') ?? document.getElementById(title))?.focus();
    });
  }, []);
}
