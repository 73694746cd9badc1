// Formulas between dollars, as pymdownx.arithmatex marks them: \[…\] in a block, \(…\) in a line.
document.addEventListener("DOMContentLoaded", () => {
  for (const place of document.querySelectorAll(".arithmatex")) {
    katex.render(place.textContent.trim().slice(2, -2), place, {
      displayMode: place.tagName === "DIV",
      throwOnError: false,
    });
  }
});
