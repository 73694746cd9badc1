// Sorts a table when a heading is pressed: numbers by data-value, names by their text.
for (const table of document.querySelectorAll("table.sortable")) {
  const headings = [...table.tHead.rows[0].cells];
  headings.forEach((heading, column) => {
    const button = heading.querySelector("button");
    if (!button) return;
    button.addEventListener("click", () => {
      const first = heading.dataset.first || "descending";
      const other = first === "ascending" ? "descending" : "ascending";
      const direction = heading.getAttribute("aria-sort") === first ? other : first;
      headings.forEach((one) => one.removeAttribute("aria-sort"));
      heading.setAttribute("aria-sort", direction);
      const key = (row) => row.cells[column].dataset.value ?? row.cells[column].textContent;
      const compare = (a, b) =>
        isNaN(key(a)) || isNaN(key(b)) ? key(a).localeCompare(key(b)) : Number(key(a)) - Number(key(b));
      const rows = [...table.tBodies[0].rows].sort(compare);
      if (direction === "descending") rows.reverse();
      table.tBodies[0].append(...rows);
    });
  });
}
