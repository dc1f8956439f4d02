// Asking the server that a page came from, and telling what it answered.

class Refused extends Error {}

async function ask(path, { method = "GET", body, headers = {} } = {}) {
  const type = body === undefined ? {} : { "Content-Type": "application/json" };
  const answer = await fetch(path, { method, headers: { ...type, ...headers }, body: body && JSON.stringify(body) });
  if (answer.status === 304) return undefined;
  const said = await answer.json();
  if (answer.ok) return Object.assign(said, { etag: said.etag ?? answer.headers.get("etag") });
  if (answer.status === 401) location.reload();
  throw Object.assign(new Refused(`${said.detail} ${said.remedy}`), { status: said.status });
}

// Follows a stream, and says in `state` whether it comes. Whoever was refused does `again` after a while; else the browser
// tries again by itself.
function follow(path, state, again) {
  const events = new EventSource(path);
  events.onopen = () => {
    state.textContent = "live";
    untell();
  };
  events.onerror = () => {
    state.textContent = "not connected, trying again";
    if (events.readyState === EventSource.CLOSED) setTimeout(again, 5000);
  };
  return events;
}

// The part of a path that stands for an id: itself, or its base64url behind a ~ if paths cannot have it.
function segmentOf(id) {
  if (!/\/|^~|^\.\.?$/.test(id)) return encodeURIComponent(id);
  const bytes = String.fromCharCode(...new TextEncoder().encode(id));
  return `~${btoa(bytes).replaceAll("+", "-").replaceAll("/", "_").replaceAll("=", "")}`;
}

const NO_ANSWER = "The server does not answer.";
const telling = make("p", { id: "told", class: "told", role: "status" });
document.querySelector("main").before(telling);

function tell(text, { isBad = false, link } = {}) {
  telling.classList.toggle("refused", isBad);
  telling.replaceChildren(make("bdi", { text }), ...(link ? [" ", make("a", link)] : []));
}

function tellError(error) {
  if (error instanceof Refused) tell(error.message, { isBad: true });
  // The server does not answer: the page goes on when it does.
  else if (error instanceof TypeError) tell(NO_ANSWER, { isBad: true });
  else throw error;
}

// The server answers again.
function untell() {
  if (telling.textContent === NO_ANSWER) telling.replaceChildren();
}

function isTyping(event) {
  return event.target.closest("input, select, textarea") || event.ctrlKey || event.metaKey || event.altKey;
}
