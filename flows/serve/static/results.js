// Two rankings in two columns: each result with its score and its place in the other ranking.

const SHOWN = 10;
const MOST_SHOWN = 50; // after "Show more"
const OTHER = { model: "BM25", bm25: "model" };

export function draw(sides, query, model, bm25) {
  drawSide(sides.querySelector('[data-side="model"]'), query, model, bm25);
  drawSide(sides.querySelector('[data-side="bm25"]'), query, bm25, model);
}

function drawSide(side, query, mine, others) {
  const name = side.dataset.side;
  const rankThere = new Map(others.hits.map((hit) => [hit.id, hit.rank]));
  const most = mine.hits[0]?.score; // of BM25, which has no limit
  side.querySelector(".took").textContent = `${milliseconds(mine.took_ms)}`;
  side.querySelector(".results").replaceChildren(
    ...mine.hits.slice(0, MOST_SHOWN).map((hit) => {
      const item = document.getElementById("result").content.firstElementChild.cloneNode(true);
      const button = item.querySelector(".result");
      const why = item.querySelector(".why");
      button.dataset.id = hit.id;
      button.dataset.query = query;
      button.dataset.mode = mine.mode;
      button.dataset.release = mine.release;
      why.id = `why-${name}-${hit.rank}`;
      why.setAttribute("aria-label", "What carried the score");
      button.setAttribute("aria-controls", why.id);
      item.querySelector(".rank").textContent = hit.rank;
      item.querySelector(".title").textContent = hit.title;
      item.querySelector(".score").textContent = name === "model" ? ranked(hit).toFixed(3) : hit.score.toFixed(2);
      const share = name === "model" ? nearness(hit) : hit.score / most;
      item.querySelector(".score").style.setProperty("--share", `${Math.max(0, 100 * share)}%`);
      elsewhere(item.querySelector(".elsewhere"), name, hit, rankThere.get(hit.id), others.hits.length);
      item.hidden = hit.rank > SHOWN;
      return item;
    }),
  );
  const none = side.querySelector(".empty");
  none.hidden = mine.hits.length > 0;
  none.textContent = name === "bm25" ? "No title has a word of the query." : "Nothing was found.";
  side.querySelector(".more").hidden = mine.hits.length <= SHOWN;
}

// A release compares by cosine or by distance, and a hit, or an explained pair, has one of the two.
export const near = (found) => found.distance ?? found.cosine;
export const nameOfNear = (found) => (found.distance === null ? "cosine" : "distance");
const ranked = (hit) => hit.distance ?? hit.score; // the cosine, or what it makes with the words
const nearness = (hit) => (hit.distance === null ? hit.score : 1 / (1 + hit.distance)); // at most 1

// Where the same document stands in the other ranking.
function elsewhere(span, name, hit, there, looked) {
  if (!looked) return; // the other side says itself that it has none
  if (there === undefined) {
    if (name === "bm25") span.textContent = `only here · ${nameOfNear(hit)} ${near(hit).toFixed(3)}`;
    else if (hit.bm25) span.textContent = `only here · BM25 ${hit.bm25.toFixed(2)}`;
    else span.textContent = "only here: it has no word of the query";
    span.classList.add("only");
    return;
  }
  const up = there - hit.rank;
  span.textContent = `${OTHER[name]} ${there}`;
  const mark = document.createElement("span");
  mark.className = up > 0 ? "up" : up < 0 ? "down" : "same";
  mark.textContent = up > 0 ? ` ▲ ${up}` : up < 0 ? ` ▼ ${-up}` : " =";
  mark.setAttribute("aria-label", up > 0 ? `, ${up} higher here` : up < 0 ? `, ${-up} lower here` : ", the same here");
  mark.setAttribute("role", "img");
  span.append(mark);
}

export function reveal(button) {
  const hidden = [...button.parentElement.querySelectorAll(".results > li[hidden]")];
  for (const item of hidden.slice(0, SHOWN)) item.hidden = false;
  button.hidden = hidden.length <= SHOWN;
  hidden[0]?.querySelector(".result").focus();
}

// To the result above or below; above the first is the query.
export function step(result, by, above) {
  const shown = [...result.closest(".results").querySelectorAll("li:not([hidden]) > .result")];
  const next = shown[shown.indexOf(result) + by];
  (next ?? (by < 0 ? above : result)).focus();
}

export function same(sides, result, on) {
  for (const other of sides.querySelectorAll(".result")) {
    if (other !== result && other.dataset.id === result.dataset.id) other.classList.toggle("same", on);
  }
}

// To the same document in the ranking of that side, or to the result of the same rank.
export function focusBeside(sides, result, side) {
  if (result.closest(".side").dataset.side === side) return;
  const there = [...sides.querySelectorAll(`[data-side="${side}"] li:not([hidden]) > .result`)];
  const rank = [...result.closest(".results").children].indexOf(result.parentElement);
  (there.find((other) => other.dataset.id === result.dataset.id) ?? there[Math.min(rank, there.length - 1)])?.focus();
}

export function milliseconds(took) {
  return `${took < 10 ? took.toFixed(1) : Math.round(took)} ms`;
}
