// Tables that a click on a column head sorts, and the button that copies the command.

function makeSortable(table) {
  const rows = table.tBodies[0];
  const original = [...rows.rows];
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    head.querySelector("button").addEventListener("click", () => {
      // First click: numbers from the largest down, text from A; then the other way; then as it was.
      const first = head.classList.contains("number") ? "descending" : "ascending";
      const second = first === "ascending" ? "descending" : "ascending";
      const order = { [first]: second, [second]: null }[head.getAttribute("aria-sort")];
      const chosen = order === undefined ? first : order;
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      if (chosen) head.setAttribute("aria-sort", chosen);
      rows.append(...(chosen ? sorted(original, column, chosen, head.classList.contains("number")) : original));
    });
  });
}

// Rows by one column; those without a value stay last.
function sorted(rows, column, order, numeric) {
  const key = (row) => row.cells[column].dataset.sort;
  const sign = order === "ascending" ? 1 : -1;
  return [...rows].sort((a, b) => {
    if (key(a) === "" || key(b) === "") return (key(a) === "") - (key(b) === "");
    return sign * (numeric ? Number(key(a)) - Number(key(b)) : key(a).localeCompare(key(b), "en", { numeric: true }));
  });
}

function makeCopying(button) {
  const command = button.parentElement.querySelector("code");
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(command.textContent);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(command); // a browser that forbids it: one key is left to press
      button.textContent = "Selected";
    }
    setTimeout(() => (button.textContent = "Copy"), 1500);
  });
}
