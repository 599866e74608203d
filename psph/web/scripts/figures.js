// Figures with their words, changed in place. Rows are [words, value, unit].

import { arrange, element, setText } from "./showing.js";

function made() {
  return element("div", {}, element("dt"), element("dd", {}, element("span"), element("small")));
}

export function figures(target, rows) {
  arrange(target, rows.map(([words, value, unit], index) => {
    const row = target.children[index] ?? made();
    setText(row.querySelector("dt"), words);
    setText(row.querySelector("dd span"), value);
    setText(row.querySelector("small"), unit);
    return row;
  }));
}
