// The theme that a person chose, before anything is drawn; without a choice it is the system's.
(() => {
  let theme = null;
  try {
    theme = localStorage.getItem('theme');
  } catch { /* Storage is switched off: the system's theme it is. */ }
  if (theme === 'light' || theme === 'dark') {
    document.documentElement.dataset.theme = theme;
  }
})();
