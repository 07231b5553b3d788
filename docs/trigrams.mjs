// The text contract in JavaScript: a text -> its words -> the ids of their letter trigrams (schemas/text_contract.py
// defines it). With query.onnx this is all that a client needs to make a query's vector.
//
//   node docs/trigrams.mjs release/releases/DIGEST/golden.jsonl      does this machine's Unicode agree with the release?

import { readFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

// What Python's str.split() takes for white space, and the blank pattern of Braille.
const SPACE = /[\t-\r\x1c-\x20\x85\xa0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u2800\u3000]+/u;
// Characters that nobody sees.
const UNSEEN = /(?![\t-\r\x1c-\x1f\x85])[\p{Cc}\p{Cf}\p{Default_Ignorable_Code_Point}]/gu;
// Scripts written without spaces between words: Han, Hiragana, Katakana, Thai, Lao, Khmer, Myanmar.
const UNSPACED =
  "\\u{0E01}-\\u{0E3A}\\u{0E40}-\\u{0E5B}\\u{0E80}-\\u{0EFF}\\u{1000}-\\u{109F}\\u{1780}-\\u{17FF}\\u{19E0}-\\u{19FF}" +
  "\\u{2E80}-\\u{2FDF}\\u{3005}-\\u{3007}\\u{3021}-\\u{3029}\\u{3038}-\\u{303B}\\u{3041}-\\u{30FF}\\u{31F0}-\\u{31FF}" +
  "\\u{3400}-\\u{4DBF}\\u{4E00}-\\u{9FFF}\\u{A9E0}-\\u{A9FF}\\u{AA60}-\\u{AA7F}\\u{F900}-\\u{FAFF}" +
  "\\u{1B000}-\\u{1B16F}\\u{20000}-\\u{323AF}";
const RUNS = new RegExp(`[${UNSPACED}]+|[^${UNSPACED}]+`, "gu");
const IS_RUN = new RegExp(`^[${UNSPACED}]`, "u");

/** The words of a text in reading order. */
export function words(text) {
  const lowered = text.replace(UNSEEN, "").normalize("NFKC").toLowerCase();
  const folded = lowered.replace(/i\u0307+/gu, "i").normalize("NFKC"); // İ in lower case is i
  return folded.split(SPACE).filter(Boolean).flatMap((spaced) => spaced.match(RUNS).flatMap((piece) => {
    const letters = [...piece];
    if (!IS_RUN.test(piece) || letters.length === 1) return [piece];
    return letters.slice(1).map((letter, at) => letters[at] + letter); // overlapping pairs
  }));
}

const MARK = 0x110000; // before and after a word: one past the last code point
const COMPUTED_IDS = 37 ** 3;
const MASK = (1n << 64n) - 1n;

function code(point) {
  if (point === MARK) return 0;
  if (point >= 97 && point <= 122) return point - 96; // a-z: 1-26
  if (point >= 48 && point <= 57) return point - 21; // 0-9: 27-36
  return -1;
}

/** FNV-1a over three code points, then the finaliser of MurmurHash3. */
function hash(points) {
  let digest = 0xcbf29ce484222325n;
  for (const point of points) digest = ((digest ^ BigInt(point)) * 0x100000001b3n) & MASK;
  digest = ((digest ^ (digest >> 33n)) * 0xff51afd7ed558ccdn) & MASK;
  digest = ((digest ^ (digest >> 33n)) * 0xc4ceb9fe1a85ec53n) & MASK;
  return digest ^ (digest >> 33n);
}

/** The ids of a word's trigrams; tableRows: `table_rows` of the release's text_contract. */
export function trigramIds(word, tableRows) {
  const computed = tableRows > COMPUTED_IDS ? COMPUTED_IDS : 0; // a smaller table hashes all trigrams
  const points = [MARK, ...[...word].map((letter) => letter.codePointAt(0)), MARK];
  return points.slice(2).map((_, at) => {
    const three = points.slice(at, at + 3);
    const [a, b, c] = three.map(code);
    if (computed && Math.min(a, b, c) >= 0) return (a * 37 + b) * 37 + c;
    return computed + Number(hash(three) % BigInt(tableRows - computed));
  });
}

if (process.argv[1] === fileURLToPath(import.meta.url)) {
  const [file, tableRows = "65536"] = process.argv.slice(2);
  const lines = readFileSync(file, "utf8").trimEnd().split("\n").map((line) => JSON.parse(line));
  const wrong = lines.filter((golden) => {
    const found = words(golden.text);
    const ids = found.map((word) => trigramIds(word, Number(tableRows)));
    return JSON.stringify([found, ids]) !== JSON.stringify([golden.words, golden.trigram_ids]);
  });
  console.log(`${lines.length - wrong.length} of ${lines.length} golden texts agree`);
  process.exitCode = wrong.length ? 1 : 0;
}
