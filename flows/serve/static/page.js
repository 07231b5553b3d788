// The page: what a person does, the address bar, and what is shown when.

import { listenToKeys } from "./keys.js";
import { draw, reveal, same } from "./results.js";
import { examples, explain, release, search } from "./service.js";
import { drawWhy } from "./why.js";

const TYPING_PAUSE = 250; // milliseconds
const at = (id) => document.getElementById(id);
const sides = at("sides");
let newest = 0; // the last search that was asked for: an answer to an earlier one is not shown
let pause;

async function show(query) {
  const mine = ++newest;
  clearTimeout(pause);
  const asked = query.trim();
  document.title = asked ? `${asked} · clicktower` : "clicktower · search";
  at("failed").hidden = true;
  at("start").hidden = Boolean(asked);
  document.body.classList.toggle("home", !asked);
  if (!asked) {
    at("found").hidden = true;
    at("status").textContent = "";
    sides.setAttribute("aria-busy", "false");
    return;
  }
  const waiting = setTimeout(() => {
    if (mine !== newest) return;
    sides.setAttribute("aria-busy", "true");
    at("status").textContent = "Searching…";
  }, 150);
  try {
    const [model, bm25] = await both(query);
    if (mine !== newest) return;
    draw(sides, query, model, bm25);
    at("found").hidden = false;
    at("status").textContent = summary(model, bm25);
    about(model.release);
  } catch (error) {
    if (mine !== newest) return;
    at("found").hidden = true;
    at("status").textContent = "";
    at("failed").textContent = error.message;
    at("failed").hidden = false;
  } finally {
    clearTimeout(waiting);
    if (mine === newest) sides.setAttribute("aria-busy", "false");
  }
}

// Both rankings, of one release: the next one may take over between two answers, in one worker before the other.
async function both(query) {
  for (let tries = 0; tries < 20; tries++) {
    const found = await Promise.all([search(query, "hybrid"), search(query, "bm25")]);
    if (found[0].release === found[1].release) return found;
    await new Promise((resolve) => setTimeout(resolve, 200));
  }
  throw new Error("The service is changing to another release. Search again in a moment.");
}

function summary(model, bm25) {
  const both = new Set(model.hits.slice(0, 10).map((hit) => hit.id));
  const common = bm25.hits.slice(0, 10).filter((hit) => both.has(hit.id)).length;
  if (!bm25.hits.length) return "BM25 finds nothing: no title has a word of the query.";
  return `Of the first ten, ${common || "none"} ${common === 1 ? "is" : "are"} in both rankings.`;
}

// Which release answers, asked again when an answer came from another one.
let known;
async function about(name) {
  if (name && name === known) return;
  try {
    const found = await release();
    known = found.release;
    at("release").textContent = found.line;
    at("simulated").hidden = !found.simulated;
    at("compared").textContent = found.compared;
  } catch (error) {
    at("release").textContent = "";
  }
}

async function offer() {
  try {
    const list = at("examples");
    list.replaceChildren(
      ...(await examples()).map((example) => {
        const item = document.createElement("li");
        const link = document.createElement("a");
        link.href = `?q=${encodeURIComponent(example.query)}`;
        link.textContent = example.query;
        item.append(link);
        if (example.note) {
          const note = document.createElement("span");
          note.className = "quiet";
          note.textContent = ` ${example.note}`;
          item.append(note);
        }
        return item;
      }),
    );
    at("examples-label").hidden = !list.children.length;
  } catch (error) {
    at("examples-label").hidden = true; // a page without examples is a page all the same
  }
}

async function toggle(button) {
  const why = button.parentElement.querySelector(".why");
  const opens = why.hidden;
  why.hidden = !opens;
  button.setAttribute("aria-expanded", String(opens));
  if (!opens || why.dataset.drawn) return;
  why.dataset.drawn = "waiting";
  why.textContent = "Reading…";
  try {
    const found = await explain(button.dataset.query, button.dataset.id, button.dataset.mode);
    if (found.release === button.dataset.release) drawWhy(why, found);
    else throw new Error("Another release has taken over since: search again to see its rankings.");
  } catch (error) {
    why.textContent = error.message;
    why.dataset.drawn = ""; // asked again the next time
  }
}

// Typing adds a single entry to the history and rewrites it, so that Back returns to the query before it.
function go(query, typed) {
  clearTimeout(pause);
  const url = query.trim() ? `?q=${encodeURIComponent(query)}` : location.pathname;
  const same = location.search === (query.trim() ? url : "");
  const rewrite = same || history.state?.typed;
  if (!same || !typed) history[rewrite ? "replaceState" : "pushState"]({ typed }, "", url);
  show(query);
}

at("form").addEventListener("submit", (event) => {
  event.preventDefault();
  go(at("query").value, false);
});
at("query").addEventListener("input", (event) => {
  clearTimeout(pause);
  if (!event.isComposing) pause = setTimeout(() => go(at("query").value, true), TYPING_PAUSE);
});
at("query").addEventListener("compositionend", () => {
  pause = setTimeout(() => go(at("query").value, true), TYPING_PAUSE);
});
at("examples").addEventListener("click", (event) => {
  if (!event.target.matches("a") || event.ctrlKey || event.metaKey || event.shiftKey) return;
  event.preventDefault();
  at("query").value = event.target.textContent;
  at("query").focus();
  go(at("query").value, false);
});
sides.addEventListener("click", (event) => {
  const button = event.target.closest("button");
  if (button?.matches(".result")) toggle(button);
  else if (button?.matches(".more")) reveal(button);
});
// The same document in the other ranking is shown while one is looked at.
for (const [event, on] of [["focusin", true], ["focusout", false], ["mouseover", true], ["mouseout", false]]) {
  sides.addEventListener(event, ({ target }) => {
    const result = target.closest(".result");
    if (result) same(sides, result, on);
  });
}
document.querySelector(".switch").addEventListener("click", (event) => {
  if (event.target.matches("button")) showSide(event.target.dataset.show);
});
function showSide(name) {
  sides.dataset.show = name;
  for (const button of document.querySelectorAll(".switch button")) {
    button.setAttribute("aria-pressed", String(button.dataset.show === name));
  }
}

listenToKeys(at("query"), sides, { toggle, showSide });

function fromAddress() {
  at("query").value = new URLSearchParams(location.search).get("q") ?? "";
  show(at("query").value);
}
addEventListener("popstate", fromAddress);
about();
offer();
fromAddress();
