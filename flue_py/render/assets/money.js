// What each model's calls used and cost. Sums of money come as text, exact; what nobody knows is a dash.

function drawMoney() {
  const { rows, total } = data.models;
  const line = (name, model, bill) => [
    name || "—", model, numeric(number(bill.calls)), ...bill.usage.map((count) => numeric(number(count))), numeric(costOf(bill)),
  ];
  const headings = ["Provider", "Model", ...["Calls", "Input", "Output", "Cache read", "Cache write", "Cost"].map(numeric)];
  byId("bills").replaceChildren(rows.length
    ? table(headings, rows.map((row) => line(row.provider, row.model, row)), line("All", "", total))
    : make("p", { class: "muted", text: "No call was paid for in this session." }));
}

function costOf(bill) {
  if (bill.cost === null) return "—";
  return bill.unpriced ? `${bill.cost} + ${number(bill.unpriced)} unpriced` : bill.cost;
}
