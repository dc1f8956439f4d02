// The data, and how elements are made. Text is only ever set as text.

const data = JSON.parse(document.getElementById("report-data").textContent);

function byId(id) {
  return document.getElementById(id);
}

// Makes an element: `text`, `class` and `on` (listeners) are special, every other property is an attribute.
function make(tag, properties = {}, ...children) {
  const made = document.createElement(tag);
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || value === null || value === false) continue;
    if (name === "text") made.textContent = value;
    else if (name === "class") made.className = value;
    else if (name === "on") for (const [event, listener] of Object.entries(value)) made.addEventListener(event, listener);
    else made.setAttribute(name, value === true ? "" : value);
  }
  made.append(...children.filter((child) => child !== null && child !== undefined));
  return made;
}

const SVG = "http://www.w3.org/2000/svg";

function makeShape(tag, attributes) {
  const made = document.createElementNS(SVG, tag);
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  return made;
}

const grouped = new Intl.NumberFormat("en-US");

function number(value) {
  return grouped.format(value);
}

// What nobody knows is a dash, never 0.
function known(value) {
  return value === null ? "—" : number(value);
}

function short(value) {
  for (const [unit, sign] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]]) {
    if (value >= unit * 0.9995) {
      const scaled = value / unit;
      return (scaled < 9.95 ? scaled.toFixed(1) : scaled.toFixed(0)) + sign;
    }
  }
  return String(value);
}

function counted(count, one, many = one + "s") {
  return `${number(count)} ${count === 1 ? one : many}`;
}

// Lets arrow keys go through buttons of which one is in the tab order, and chooses on the way where `choose` is given.
function roving(buttons, choose) {
  buttons.forEach((button, place) => {
    button.addEventListener("keydown", (event) => {
      const steps = { ArrowRight: 1, ArrowDown: 1, ArrowLeft: -1, ArrowUp: -1 };
      let next;
      if (event.key in steps) next = (place + steps[event.key] + buttons.length) % buttons.length;
      else if (event.key === "Home") next = 0;
      else if (event.key === "End") next = buttons.length - 1;
      else return;
      event.preventDefault();
      buttons[next].focus();
      choose(next);
    });
  });
}

function table(headings, rows, foot) {
  const cells = (tag, row) => row.map((cell, place) =>
    make(place === 0 && tag === "td" ? "th" : tag, {
      class: typeof cell === "object" && cell.numeric ? "numeric" : undefined,
      scope: tag === "th" ? "col" : place === 0 ? "row" : undefined,
      dir: typeof cell === "object" && cell.numeric ? undefined : "auto",
      text: typeof cell !== "object" ? cell : cell.choose ? undefined : cell.text,
    }, cell.choose && make("button", { type: "button", class: "link", text: cell.text, on: { click: cell.choose } })));
  const made = make("table", {}, make("thead", {}, make("tr", {}, ...cells("th", headings))));
  const body = make("tbody");
  for (const row of rows) body.append(make("tr", {}, ...cells("td", row)));
  made.append(body);
  if (foot) made.append(make("tfoot", {}, make("tr", {}, ...cells("td", foot))));
  return made;
}

function numeric(text) {
  return { text, numeric: true };
}
