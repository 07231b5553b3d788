// What keys do: arrows go through the results, Escape closes one, / goes back to the query.

import { focusBeside, step } from "./results.js";

export function listenToKeys(query, sides, { toggle, showSide }) {
  document.addEventListener("keydown", (event) => {
    if (event.isComposing || event.ctrlKey || event.metaKey || event.altKey) return;
    const here = document.activeElement;
    const result = here.closest?.(".result");
    if (event.key === "/" && here !== query) {
      query.focus();
      query.select();
    } else if (event.key === "ArrowDown" && here === query) {
      sides.querySelector(`[data-side="${sides.dataset.show}"] .result`)?.focus();
    } else if (result && (event.key === "ArrowDown" || event.key === "ArrowUp")) {
      step(result, event.key === "ArrowDown" ? 1 : -1, query);
    } else if (result && (event.key === "ArrowLeft" || event.key === "ArrowRight")) {
      const side = event.key === "ArrowLeft" ? "model" : "bm25";
      showSide(side);
      focusBeside(sides, result, side);
    } else if (event.key === "Escape" && here.closest?.(".results li")) {
      const button = here.closest("li").querySelector(".result");
      if (button.getAttribute("aria-expanded") === "true") toggle(button);
      button.focus();
    } else {
      return;
    }
    event.preventDefault();
  });
}
