// What carried a score: its parts, what each word of the query adds, and every word's share of the cosine.

import { milliseconds, nameOfNear, near } from "./results.js";

const LONG = 20; // words, above which a table scrolls within its own frame

export function drawWhy(panel, found) {
  const words = [...found.query.words, ...found.title.words];
  const columns = sumColumns(found);
  const compared = nameOfNear(found);
  panel.style.setProperty("--zero", `${100 * zero(words)}%`);
  panel.replaceChildren(
    ...facts(found),
    ...(columns.length ? [table("What each word of the query adds", found.query, columns)] : []),
    table(`Words of the query, in the ${compared}`, found.query, shareColumns(words)),
    table(`Words of the title, in the ${compared}`, found.title, shareColumns(words)),
    legend(found, words, compared),
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

const inMode = (found, value) => value.toFixed(found.mode === "bm25" ? 2 : 3); // as the ranking shows it

// The parts of the score, in the order in which a search adds them up.
function parts(found) {
  const { vectors, words, terms } = found.contributions;
  return [
    ...(found.mode === "bm25" ? [] : [[nameOfNear(found), vectors]]),
    ...(found.word_share ? [["words", words]] : []),
    ...(found.lexical_share ? [["terms", terms]] : []),
  ];
}

// The score, by the name and with the digits that the ranking shows, then what it is made of.
function facts(found) {
  const compared = `${nameOfNear(found)} ${near(found).toFixed(3)}`;
  const bm25 = `BM25 ${found.bm25.toFixed(2)}`;
  const sum = parts(found).map(([name, value]) => `${name} ${inMode(found, value).replace("-", "−")}`).join(" + ");
  const isSum = parts(found).length > 1;
  const times = (text, share) => `${text} × ${(100 * share).toFixed(0)}%`;
  const [w, l] = [found.word_share, found.lexical_share];
  const beside = [
    ...(isSum ? [times(compared, (1 - l) * (1 - w))] : []),
    ...(w ? [times(`words ${found.words.toFixed(3)}`, (1 - l) * w)] : []),
    ...(l ? [times(`terms ${found.terms.toFixed(3)}`, l)] : []),
    found.mode === "bm25" ? compared : bm25,
    `explained in ${milliseconds(found.took_ms)}`,
  ];
  const score = isSum ? `score ${inMode(found, found.score)} = ${sum}` : found.mode === "bm25" ? bm25 : compared;
  return [element("p", { class: "facts" }, score), element("p", { class: "facts quiet" }, beside.join(" · "))];
}

// A column: its head, its class, and what stands there for a word.
function sumColumns(found) {
  const adds = (part) => (word) => {
    const value = word.contributions[part];
    if (part === "terms" && !word.terms.length) return "no term";
    return value ? `${value < 0 ? "−" : "+"}${inMode(found, Math.abs(value))}` : "–";
  };
  return [
    ...(found.word_share
      ? [["best match", "match", ({ match }) => `${match.word} ${match.cosine.toFixed(2).replace("-", "−")}`], ["words", "number", adds("words")]]
      : []),
    ...(found.lexical_share || found.mode === "bm25" ? [["terms", "number", adds("terms")]] : []),
  ];
}

function shareColumns(words) {
  const bar = (word) => {
    const made = element("span", { class: `bar ${word.share < 0 ? "against" : "for"}` });
    made.style.setProperty("--size", `${(100 * Math.abs(word.share)) / span(words)}%`);
    return made;
  };
  return [
    ["", "picture", (word) => (word.share === null ? "" : bar(word))],
    ["share", "number", (word) => (word.share === null ? "" : signed(word.share))],
  ];
}

function table(caption, text, columns) {
  const head = element("tr", {}, element("th", { scope: "col" }, "word"));
  for (const [name, kind] of columns) head.append(element(name ? "th" : "td", name ? { scope: "col", class: kind } : { class: kind }, name));
  const rows = text.words.map((word) => {
    const label = element("bdi", {}, word.word);
    const row = element("tr", {}, element("th", { scope: "row", class: word.keyword ? "keyword" : "", title: cells(word) }, label));
    for (const [, kind, of] of columns) {
      const hidden = kind === "picture" ? { "aria-hidden": "true" } : {};
      row.append(element("td", { class: kind, ...hidden }, element("bdi", {}, of(word))));
    }
    return row;
  });
  const left = text.num_words - text.words.length;
  if (left > 0) {
    const note = `and ${left.toLocaleString("en")} more words, which were not left out in turn`;
    rows.push(element("tr", {}, element("td", { colspan: 1 + columns.length, class: "quiet" }, note)));
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

function legend(found, words, compared) {
  const changes = compared === "distance" ? "the distance grows" : "the cosine falls";
  const sentences = [];
  if (parts(found).length > 1) {
    sentences.push(
      "The score is a sum. " +
        `The ${compared} is that of the whole texts. Words: how near each word of the query comes to its best match in the ` +
        "title, rare words weighing more. Terms: how much of the query’s BM25 the title has. What the words add, added up, " +
        "is these parts.",
    );
  }
  sentences.push(
    `A share is how much ${changes} when the word is left out. ` +
      `Words depend on each other, so shares do not add up to the ${compared}.`,
  );
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
