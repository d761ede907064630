// Formulas of pymdownx.arithmatex: spans hold \(…\), divs hold \[…\]. KaTeX does not know ‖.
for (const formula of document.querySelectorAll(".arithmatex")) {
  katex.render(formula.textContent.slice(2, -2), formula, {
    displayMode: formula.tagName === "DIV",
    macros: { "‖": "\\|" },
  });
}
