// The address of an entry, `#ENTRY`, or `#SESSION/ENTRY` in a task; and the pane that reads it, on a narrow window.

function addressOf(place, at) {
  const entry = encodeURIComponent(sessions[place].entries[at].id);
  return place ? `#${encodeURIComponent(sessions[place].id)}/${entry}` : `#${entry}`;
}

// Which entry the address names: the place of its session and its own, or undefined.
function addressed() {
  if (!location.hash) return undefined;
  let names;
  try {
    names = location.hash.slice(1).split("/").map(decodeURIComponent);
  } catch {
    return undefined;
  }
  const place = names.length === 2 ? sessions.findIndex((session) => session.id === names[0]) : 0;
  const at = place < 0 ? -1 : sessions[place].entries.findIndex((entry) => entry.id === names.at(-1));
  return at < 0 ? undefined : { place, at };
}

// An address that cannot be changed (a page in a frame of another one) stays as it is.
function setAddress(address, { isNew = false, state = history.state } = {}) {
  try {
    history[isNew ? "pushState" : "replaceState"](state, "", address);
  } catch (error) {
    if (error.name !== "SecurityError") throw error;
  }
}

const NARROW = matchMedia("(max-width: 960px)");

// On a narrow window what is read lies over the page, until it is closed: by its button, Escape, or going back.
class Pane {
  constructor(onClose) {
    this.onClose = onClose;
    this.element = byId("reading");
    byId("pane-close").addEventListener("click", () => this.leave());
    this.element.addEventListener("keydown", (event) => {
      if (event.key === "Escape" && this.isOpen) this.leave();
    });
    NARROW.addEventListener("change", () => this.set(false));
  }

  get isOpen() {
    return document.body.dataset.pane === "open";
  }

  // Opens it for an entry that was just chosen, so that going back closes it.
  openFor(address) {
    if (!NARROW.matches || this.isOpen) setAddress(address);
    else {
      setAddress(address, { isNew: true, state: { pane: true } });
      this.set(true);
    }
  }

  leave() {
    if (history.state?.pane) history.back();
    else this.set(false);
  }

  set(isOpen) {
    if (isOpen === this.isOpen || (isOpen && !NARROW.matches)) return;
    if (isOpen) document.body.dataset.pane = "open";
    else delete document.body.dataset.pane;
    for (const other of document.querySelectorAll("body > header, body > footer, .skip, main > :not(.panes), #history")) {
      other.inert = isOpen;
    }
    this.element.role = isOpen ? "dialog" : null;
    this.element.ariaModal = isOpen ? "true" : null;
    if (isOpen) byId("pane-close").focus();
    else this.onClose();
  }
}
