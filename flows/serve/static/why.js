// What carried a score: the two texts with their words shaded, every word with its share, and the strongest trigrams.

import { milliseconds, nameOfNear, near } from "./results.js";

const CHIPS = 5; // trigrams of each text
const LEAST_SHARE = 0.0005; // what is shown as 0.000 is left out
const SHADES = 4;
const LONG = 20; // words, above which a text scrolls within its own frame

export function drawWhy(panel, found) {
  const texts = [found.query, found.title];
  const words = texts.flatMap((text) => text.words);
  const most = largest(words);
  const mostTrigram = largest(words.flatMap((word) => word.trigrams));
  panel.style.setProperty("--zero", `${100 * zero(words)}%`);
  panel.replaceChildren(
    reading("Query", found.query, most),
    reading("Title", found.title, most),
    facts(found),
    table("Words of the query", found.query, span(words), mostTrigram, found.bm25 !== null),
    ...trigrams("trigrams of the query that weigh most", found.query, mostTrigram),
    table("Words of the title", found.title, span(words), mostTrigram, false),
    ...trigrams("trigrams of the title that weigh most", found.title, mostTrigram),
    legend(words, found.query.cut || found.title.cut, nameOfNear(found)),
  );
  panel.dataset.drawn = "yes";
}

const largest = (parts) => parts.reduce((most, part) => Math.max(most, Math.abs(part.share)), 1e-9);

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

function shade(share, most) {
  const strength = Math.min(SHADES, Math.round((Math.abs(share) / most) * SHADES));
  return strength ? `${share > 0 ? "p" : "n"}${strength}` : "";
}

// The text as it was typed: places are counted in code points. Where words overlap, their shares are averaged.
function reading(name, text, most) {
  const points = Array.from(text.text);
  const bounds = new Set([0, points.length]);
  for (const word of text.words) bounds.add(word.start).add(word.end);
  const sorted = [...bounds].sort((a, b) => a - b);
  const line = element("bdi", { class: "typed" });
  if (text.num_words > 5 * LONG) {
    line.classList.add("long");
    for (const [key, value] of Object.entries({ tabindex: "0", role: "group", "aria-label": name })) {
      line.setAttribute(key, value);
    }
  }
  for (let piece = 0; piece + 1 < sorted.length; piece++) {
    const [start, end] = [sorted[piece], sorted[piece + 1]];
    const letters = points.slice(start, end).join("");
    const over = text.words.filter((word) => word.start <= start && end <= word.end);
    if (!over.length) {
      line.append(letters);
      continue;
    }
    const share = over.reduce((sum, word) => sum + word.share, 0) / over.length;
    const keyword = over.some((word) => word.keyword);
    const told = over.map((word) => `${word.word} ${signed(word.share)}${cells(word)}`).join("; ");
    const kind = `word ${shade(share, most)}${keyword ? " keyword" : ""}`;
    line.append(element("span", { class: kind, title: told }, letters));
  }
  return element("p", { class: "reading" }, element("span", { class: "quiet" }, name), " ", line);
}

const cells = (word) =>
  word.moved === null ? "" : `, moves ${Math.round(100 * word.moved)}% of the most active cells`;

function facts(found) {
  const parts = [`${nameOfNear(found)} ${near(found).toFixed(3)}`];
  if (found.bm25 !== null) parts.push(`BM25 ${found.bm25.toFixed(2)}`);
  parts.push(`explained in ${milliseconds(found.took_ms)}`);
  return element("p", { class: "facts quiet" }, parts.join(" · "));
}

function table(caption, text, whole, mostTrigram, withBM25) {
  const head = element(
    "tr",
    {},
    element("th", { scope: "col" }, "word"),
    element("td", { class: "picture" }),
    element("th", { scope: "col", class: "number" }, "share"),
  );
  if (withBM25) head.append(element("th", { scope: "col", class: "number" }, "BM25"));
  const rows = text.words.map((word) => {
    const bar = element("span", { class: `bar ${word.share < 0 ? "against" : "for"}` });
    bar.style.setProperty("--size", `${(100 * Math.abs(word.share)) / whole}%`);
    const row = element(
      "tr",
      {},
      element("th", { scope: "row", class: word.keyword ? "keyword" : "" }, spelled(word, mostTrigram)),
      element("td", { class: "picture", "aria-hidden": "true" }, bar),
      element("td", { class: "number" }, signed(word.share)),
    );
    if (withBM25) row.append(element("td", { class: "number" }, word.bm25 ? word.bm25.toFixed(2) : "–"));
    return row;
  });
  const left = text.num_words - text.words.length;
  if (left > 0) {
    const note = `and ${left.toLocaleString("en")} more words, which were not left out in turn`;
    rows.push(element("tr", {}, element("td", { colspan: withBM25 ? 4 : 3, class: "quiet" }, note)));
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

// A word with each letter shaded by the trigram around it.
function spelled(word, most) {
  const letters = Array.from(word.word);
  const whole = element("bdi", { class: "spelled" });
  if (word.trigrams.length !== letters.length) {
    whole.append(word.word);
    return whole;
  }
  for (const [number, letter] of letters.entries()) {
    const { letters: three, share } = word.trigrams[number];
    const told = { class: `letter ${shade(share, most)}`, title: `${three} ${signed(share)}` };
    whole.append(element("span", told, letter));
  }
  return whole;
}

function trigrams(name, text, most) {
  const strongest = text.words
    .flatMap((word) => word.trigrams.map((trigram) => ({ ...trigram, word: word.word })))
    .filter((trigram) => Math.abs(trigram.share) >= LEAST_SHARE)
    .sort((a, b) => Math.abs(b.share) - Math.abs(a.share))
    .slice(0, CHIPS);
  if (!strongest.length) return [];
  const list = element("ul", { class: "trigrams", "aria-label": name });
  for (const one of strongest) {
    const chip = element(
      "li",
      { class: one.shared ? "shared" : "", title: `in ${one.word}${one.shared ? ", and in the other text" : ""}` },
      element("bdi", { class: `letters ${shade(one.share, most)}` }, one.letters),
      element("span", { class: "number" }, ` ${signed(one.share)}`),
    );
    if (one.shared) chip.append(element("span", { class: "hidden" }, " in both texts"));
    list.append(chip);
  }
  return [list];
}

function legend(words, cut, compared) {
  const changes = compared === "distance" ? "the distance grows" : "the cosine falls";
  const sentences = [
    `A share is how much ${changes} when the word, or the one letter trigram, is left out. ` +
      `Words lean on each other, so shares do not add up to the ${compared}.`,
    "Below each table are the letter trigrams that weigh most, framed if both texts have them; " +
      "# is where a word begins or ends. A letter has the colour of the trigram around it.",
  ];
  if (words.some((word) => word.keyword !== null)) {
    sentences.push("Underlined are keywords: words at which the model’s most active cells move.");
  }
  if (cut) sentences.push("A text is too long for everything in it to be left out in turn.");
  return element(
    "details",
    { class: "quiet legend" },
    element("summary", {}, "How to read this"),
    ...sentences.map((sentence) => element("p", {}, sentence)),
  );
}
