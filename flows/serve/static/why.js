// What carried a score: every word of the two texts with its share.

import { milliseconds, nameOfNear, near } from "./results.js";

const LONG = 20; // words, above which a table scrolls within its own frame

export function drawWhy(panel, found) {
  const words = [...found.query.words, ...found.title.words];
  panel.style.setProperty("--zero", `${100 * zero(words)}%`);
  panel.replaceChildren(
    facts(found),
    table("Words of the query", found.query, span(words), queryColumns(found)),
    table("Words of the title", found.title, span(words), []),
    legend(words, nameOfNear(found)),
  );
  panel.dataset.drawn = "yes";
}

// Where 0 stands between the lowest share and the highest, from 0 to 1.
const lowest = (words) => Math.min(0, ...words.map((word) => word.share));
const highest = (words) => Math.max(0, ...words.map((word) => word.share));
const span = (words) => highest(words) - lowest(words) || 1;
const zero = (words) => -lowest(words) / span(words);

function element(name, attributes = {}, ...children) {
  const made = document.createElement(name);
  for (const [key, value] of Object.entries(attributes)) made.setAttribute(key, value);
  made.append(...children);
  return made;
}

const signed = (value) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(3)}`;

const cells = (word) =>
  word.moved === null ? "" : `moves ${Math.round(100 * word.moved)}% of the most active cells`;

// The head of a further column, its class, and what stands there for a word.
const queryColumns = (found) => [
  ...(found.bm25 === null ? [] : [["BM25", "number", (word) => (word.bm25 ? word.bm25.toFixed(2) : "–")]]),
  ...(found.query.words.some((word) => word.match)
    ? [["best match", "", (word) => `${word.match.word} ${word.match.cosine.toFixed(2).replace("-", "−")}`]]
    : []),
];

function facts(found) {
  const parts = [`${nameOfNear(found)} ${near(found).toFixed(3)}`];
  if (found.bm25 !== null) parts.push(`BM25 ${found.bm25.toFixed(2)}`);
  parts.push(`explained in ${milliseconds(found.took_ms)}`);
  return element("p", { class: "facts quiet" }, parts.join(" · "));
}

function table(caption, text, whole, columns) {
  const head = element(
    "tr",
    {},
    element("th", { scope: "col" }, "word"),
    element("td", { class: "picture" }),
    element("th", { scope: "col", class: "number" }, "share"),
  );
  for (const [name, kind] of columns) head.append(element("th", { scope: "col", class: kind }, name));
  const rows = text.words.map((word) => {
    const bar = element("span", { class: `bar ${word.share < 0 ? "against" : "for"}` });
    bar.style.setProperty("--size", `${(100 * Math.abs(word.share)) / whole}%`);
    const row = element(
      "tr",
      {},
      element("th", { scope: "row", class: word.keyword ? "keyword" : "", title: cells(word) }, element("bdi", {}, word.word)),
      element("td", { class: "picture", "aria-hidden": "true" }, bar),
      element("td", { class: "number" }, signed(word.share)),
    );
    for (const [, kind, of] of columns) row.append(element("td", { class: kind }, element("bdi", {}, of(word))));
    return row;
  });
  const left = text.num_words - text.words.length;
  if (left > 0) {
    const note = `and ${left.toLocaleString("en")} more words, which were not left out in turn`;
    rows.push(element("tr", {}, element("td", { colspan: 3 + columns.length, class: "quiet" }, note)));
  }
  const made = element(
    "table",
    { class: "shares" },
    element("caption", {}, caption),
    element("thead", {}, head),
    element("tbody", {}, ...rows),
  );
  if (rows.length <= LONG) return made;
  return element("div", { class: "long", tabindex: "0", role: "group", "aria-label": caption }, made);
}

function legend(words, compared) {
  const changes = compared === "distance" ? "the distance grows" : "the cosine falls";
  const sentences = [
    `A share is how much ${changes} when the word is left out. ` +
      `Words depend on each other, so shares do not add up to the ${compared}.`,
  ];
  if (words.some((word) => word.keyword !== null)) {
    sentences.push("Underlined are keywords: words at which the model’s most active cells move.");
  }
  return element(
    "details",
    { class: "quiet legend" },
    element("summary", {}, "How to read this"),
    ...sentences.map((sentence) => element("p", {}, sentence)),
  );
}
