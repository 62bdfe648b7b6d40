// Dark or light: the system's choice until the reader makes another. Runs before the page is drawn, so it never flashes.
(() => {
  const root = document.documentElement;
  const stored = localStorage.getItem("ds4.theme");
  if (stored === "dark" || stored === "light") root.dataset.theme = stored;
  document.addEventListener("click", ({ target }) => {
    if (!(target instanceof Element) || target.closest("[data-toggle-theme]") === null) return;
    const isDark =
      (root.dataset.theme ?? (matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light")) ===
      "dark";
    root.dataset.theme = isDark ? "light" : "dark";
    localStorage.setItem("ds4.theme", root.dataset.theme);
  });
})();
