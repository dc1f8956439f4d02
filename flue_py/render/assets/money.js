// Money: picodollars as they were paid, how many calls they are for, and how many of those have no known price. A fourth
// number counts answers that came without a word of what they used: they are no calls, and what they cost nobody knows.

const PICODOLLARS = 1e12;
const LARGE = new Intl.NumberFormat("en-US", { minimumFractionDigits: 2, maximumFractionDigits: 4 });
const SMALL = new Intl.NumberFormat("en-US", { maximumSignificantDigits: 2 });

// Four digits after the point, and for what is smaller than those can say, its first two.
function dollars(picodollars) {
  const amount = picodollars / PICODOLLARS;
  return `$${(amount && amount < 1e-4 ? SMALL : LARGE).format(amount)}`;
}

function moneyText([picodollars, calls, unpriced, untold = 0]) {
  // A sum of 0 that leaves calls out says nothing.
  if (!picodollars && (unpriced || (untold && !calls))) return "—";
  return dollars(picodollars) + (unpriced ? " + ?" : "");
}

function sumPaid(entries) {
  const sum = [0, 0, 0, 0];
  for (const { paid } of entries) if (paid) paid.forEach((amount, place) => { sum[place] += amount; });
  return sum;
}

function drawMoney() {
  if (!data.models) return;
  const { rows, total } = data.models;
  const line = (name, model, { usage, paid }) => [
    name, model, numeric(number(paid[1])), ...usage.map((count) => numeric(known(count))), numeric(billText(paid)),
  ];
  const headings = ["Provider", "Model", ...["Calls", "Input", "Output", "Cache read", "Cache write", "Cost"].map(numeric)];
  byId("bills").replaceChildren(rows.length
    ? table(headings, rows.map((row) => line(row.provider || "—", row.model, row)), line("", "All models", total))
    : make("p", { class: "muted", text: "No call was paid for in this session." }));
}

function billText(paid) {
  const [picodollars, , unpriced] = paid;
  return unpriced && picodollars ? `${dollars(picodollars)} + ${number(unpriced)} unpriced` : moneyText(paid);
}
