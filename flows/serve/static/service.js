// What the page asks of the service. Whatever goes wrong becomes an Error whose message is a sentence for the reader.

const FETCHED = 100; // documents of each ranking, to find places in the other one; index.html says so too
const MOST_LETTERS = 2000; // of a query, that the service reads

async function ask(path, body) {
  let answer;
  try {
    answer = await fetch(path, body && {
      method: "POST",
      headers: { "Content-Type": "application/json" },
      body: JSON.stringify(body),
    });
  } catch {
    throw new Error("The service does not answer. See whether it still runs, and search again.");
  }
  let found;
  try {
    found = await answer.json();
  } catch {
    throw new Error(`The service answered with something that this page cannot read (status ${answer.status}).`);
  }
  if (!answer.ok) throw new Error(sentence(found) ?? `The service could not answer (status ${answer.status}).`);
  return found;
}

const sentence = (found) => (typeof found?.error === "string" ? found.error : null);

export async function search(query, mode) {
  if (Array.from(query).length > MOST_LETTERS) {
    throw new Error(`The query is longer than ${MOST_LETTERS.toLocaleString("en")} characters: shorten it.`);
  }
  return ask("v1/search", { query, k: FETCHED, mode });
}

export const explain = (query, id, mode) => ask("v1/explain", { query, id, mode });

export const examples = async () => (await ask("static/examples.json")).examples;

export async function release() {
  const found = await ask("v1/release");
  const parts = [
    found.similarity === "euclidean" ? "distance" : "cosine",
    ...(found.word_share ? ["words"] : []),
    ...(found.lexical_share ? ["terms"] : []),
  ];
  const documents = found.num_documents.toLocaleString("en");
  return {
    release: found.release,
    line: `release ${found.release.slice(0, 8)} · ${documents} documents`,
    simulated: Boolean(found.labels.simulated),
    compared: `by ${parts.join(", ").replace(/, (?=\w+$)/, " and ")}`,
  };
}
