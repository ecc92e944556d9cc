// profkit's tab: the runs, grouped by program, the trend of their step times, the report of one and the comparison of
// two. Everything is text.
"use strict";
const STYLE = `
  :root { color-scheme: light dark; --text: #1c1e21; --ground: #fff; --soft: #f3f4f6; --faint: #5a6069; --line: #d4d7dc;
    --link: #1f5fa8; --bar: #0072b2; --high: #b3261e; --medium: #8a5300; }
  @media (prefers-color-scheme: dark) { :root { --text: #e6e7e9; --ground: #16181b; --soft: #22252a; --faint: #a3a9b2;
    --line: #3a3f46; --link: #8fc1ff; --bar: #3d94cf; --high: #ff9a90; --medium: #f0b35c; } }
  * { box-sizing: border-box; }
  body { font: 15px/1.5 system-ui, sans-serif; margin: 0; padding: 12px 16px; color: var(--text); background: var(--ground); }
  h1 { font-size: 1.15rem; margin: 0 0 .4rem; } h2 { font-size: 1rem; margin: 1.2rem 0 .3rem; overflow-wrap: anywhere; }
  table { border-collapse: collapse; width: 100%; table-layout: fixed; }
  th, td { text-align: left; padding: 3px 12px 3px 0; vertical-align: top; border-bottom: 1px solid var(--line); }
  td { overflow-wrap: anywhere; } td.number, td.started { white-space: nowrap; font-variant-numeric: tabular-nums; }
  td.number, th.number { text-align: right; }
  thead > tr > :nth-child(1) { width: 32px; } thead > tr > :nth-child(2) { width: 20%; } thead > tr > :nth-child(3) { width: 150px; }
  thead > tr > :is(:nth-child(4), :nth-child(6)) { width: 90px; } thead > tr > :nth-child(5) { width: 132px; }
  th { color: var(--faint); font-weight: normal; }
  button, select, input { font: inherit; color: var(--text); }
  td button { color: var(--link); background: none; border: 0; padding: 0; cursor: pointer; text-align: left; }
  th button { color: inherit; background: none; border: 0; padding: 0; cursor: pointer; }
  :focus-visible { outline: 2px solid var(--link); outline-offset: 2px; }
  .bar { height: 10px; background: var(--bar); border-radius: 2px; margin-top: 6px; }
  .high { color: var(--high); } .medium { color: var(--medium); }
  .tools { margin: 8px 0; display: flex; flex-wrap: wrap; gap: 6px 14px; align-items: center; color: var(--faint); }
  .tools :is(button, select, input:not([type])) { border: 1px solid var(--faint); border-radius: 4px; padding: 2px 8px;
    background: var(--ground); max-width: 100%; }
  .tools button { color: var(--link); } .tools button:disabled { color: var(--faint); cursor: default; }
  .trend { margin: 0 0 .4rem; max-width: 46rem; } figcaption { color: var(--faint); font-size: .85rem; }
  .trend svg { display: block; width: 100%; height: 76px; background: var(--soft); }
  .trend line { stroke: var(--bar); stroke-width: 1.5; } .trend .axis { stroke: var(--faint); stroke-width: 1; }
  .trend circle { fill: var(--bar); } .trend text { fill: var(--faint); font: 12px system-ui, sans-serif; }
  iframe { width: 100%; height: calc(100vh - 60px); border: 1px solid var(--line); margin-top: 8px; }
  @media (max-width: 700px) {
    table, tbody { display: block; } thead { display: none; }
    tr { display: grid; grid-template-columns: 28px minmax(0, 1fr) auto auto; padding: 6px 0;
      border-bottom: 1px solid var(--line); }
    td { border: 0; } td.started, td.bars { display: none; } td.verdict { grid-column: 2 / -1; } td.number { min-width: 3.2rem; }
  }`;
const ORDERS = [
  ["latest first", (a, b) => b.started.localeCompare(a.started)],
  ["earliest first", (a, b) => a.started.localeCompare(b.started)],
  ["longest step first", (a, b) => (b.step_ns ?? -1) - (a.step_ns ?? -1)],
  ["shortest step first", (a, b) => (a.step_ns ?? Infinity) - (b.step_ns ?? Infinity)],
  ["most to gain first", (a, b) => b.saving - a.saving],
  ["by name", (a, b) => a.name.localeCompare(b.name)],
];
// The heading of a column, the orders that a click on it takes in turn, and the class of its cells.
const COLUMNS = [["", []], ["run", [5]], ["started", [0, 1]], ["step", [2, 3], "number"], ["", []],
  ["to gain", [4], "number"], ["verdict", []]];
const UNKNOWN = "no program named";

const make = (tag, parent, properties = {}) => Object.assign(parent.appendChild(document.createElement(tag)), properties);
function draw(tag, parent, attributes = {}, text = "") {
  const made = parent.appendChild(document.createElementNS("http://www.w3.org/2000/svg", tag));
  for (const [name, value] of Object.entries(attributes)) made.setAttribute(name, value);
  if (text) made.textContent = text;
  return made;
}
const time = (ns) => ns == null ? "" : ns >= 1e9 ? `${(ns / 1e9).toPrecision(3)} s` : ns >= 1e6
  ? `${(ns / 1e6).toPrecision(3)} ms` : `${(ns / 1e3).toPrecision(3)} µs`;
const day = (started) => started.slice(0, 16).replace("T", " ");
const at = (route, values) => `./${route}?${new URLSearchParams(values)}`;
const words = (run) => `${run.name} ${run.program} ${run.verdict} ${run.worst}`.toLowerCase();

function change(before, after) {
  if (after >= 2 * before) return `${(after / before).toPrecision(2)} times as long as`;
  const share = Math.round(100 * (after / before - 1));
  return share === 0 ? "as long as" : `${Math.abs(share)} % ${share > 0 ? "longer" : "shorter"} than`;
}

// The step times of a program's runs, in the order of their start: a dot for each, from 0 upwards.
function showTrend(parent, runs) {
  const timed = runs.filter((run) => run.step_ns != null && run.started).sort(ORDERS[1][1]);
  if (timed.length < 2) return;
  const [first, last] = [timed[0], timed.at(-1)], most = Math.max(...timed.map((run) => run.step_ns), 1);
  const told = `A step takes ${time(last.step_ns)} in the latest of ${timed.length} runs, ${
    change(first.step_ns, last.step_ns)} in the first (${time(first.step_ns)}, ${day(first.started)}).`;
  const figure = make("figure", parent, { className: "trend" });
  const svg = draw("svg", figure, { role: "img", "aria-label": told });
  const x = (place) => 12 + (place * 84) / (timed.length - 1), y = (ns) => 66 - (ns * 42) / most;
  draw("line", svg, { class: "axis", x1: "0", x2: "100%", y1: 66, y2: 66 });
  timed.forEach((run, place) => {
    const next = timed[place + 1];
    if (next) draw("line", svg, { x1: `${x(place)}%`, y1: y(run.step_ns), x2: `${x(place + 1)}%`, y2: y(next.step_ns) });
    const dot = draw("circle", svg, { cx: `${x(place)}%`, cy: y(run.step_ns), r: 4 });
    draw("title", dot, {}, `${run.name}, ${day(run.started)}: ${time(run.step_ns)}`);
  });
  draw("text", svg, { x: 4, y: 15 }, time(most));
  draw("text", svg, { x: 4, y: 62 }, "0");
  make("figcaption", figure, { textContent: told });
}

function showTable(parent, runs, tab) {
  const longest = Math.max(...runs.map((run) => run.step_ns ?? 0), 1);  // of those that are listed together
  const table = make("table", parent), head = make("tr", make("thead", table));
  for (const [name, orders, kind] of COLUMNS) {
    const cell = make(name ? "th" : "td", head, { className: kind ?? "" });
    if (!orders.length) { cell.textContent = name; continue; }
    const sorted = orders.indexOf(tab.order);
    if (sorted >= 0) cell.ariaSort = orders[sorted] === 1 || orders[sorted] === 3 || orders[sorted] === 5 ? "ascending" : "descending";
    const sort = make("button", cell, { textContent: name });
    sort.addEventListener("click", () => tab.sort(orders[(sorted + 1) % orders.length]));
  }
  const body = make("tbody", table);
  for (const run of [...runs].sort(ORDERS[tab.order][1])) {
    const row = make("tr", body);
    const box = make("input", make("td", row), { type: "checkbox", ariaLabel: `choose ${run.name}` });
    box.checked = tab.chosen.has(run);
    box.addEventListener("change", () => tab.choose(run, box.checked));
    const open = make("button", make("td", row), { textContent: run.name, className: "open" });
    open.addEventListener("click", () => tab.show(`The report of ${run.name}`, at("report", { run: run.id })));
    make("td", row, { textContent: day(run.started), title: run.started, className: "started" });
    make("td", row, { textContent: time(run.step_ns), className: "number" });
    const bar = make("div", make("td", row, { className: "bars" }), { className: "bar" });
    bar.style.width = `${(100 * (run.step_ns ?? 0)) / longest}%`;
    const gain = run.saving > 0 ? `${Math.round(100 * run.saving)} %` : "";
    make("td", row, { textContent: gain, className: "number" });
    const first = run.verdict.split("; ")[0];
    make("td", row, { textContent: first, title: run.verdict, className: `verdict ${run.worst}` });
  }
}

// What is shown of the runs, and the tools that change it.
class Tab {
  constructor(runs, list, shown) {
    Object.assign(this, { runs, shown, order: 0, chosen: new Set() });
    this.programs = [...new Set(runs.map((run) => run.program))].sort();
    make("h1", list, { textContent: "Runs that profkit diagnosed" });
    const tools = make("div", list, { className: "tools" });
    const labelled = (name, made) => { make("label", tools, { textContent: `${name} ` }).append(made); return made; };
    this.words = labelled("Filter", Object.assign(document.createElement("input"), { size: 18 }));
    this.words.addEventListener("input", () => this.refresh());
    this.program = labelled("Program", document.createElement("select"));
    for (const [value, name] of [["*", "all"], ...this.programs.map((one) => [one, one || UNKNOWN])])
      make("option", this.program, { value, textContent: name });
    this.program.addEventListener("change", () => this.refresh());
    this.by = labelled("Sort", document.createElement("select"));
    ORDERS.forEach(([name], place) => make("option", this.by, { value: place, textContent: name }));
    this.by.addEventListener("change", () => this.sort(Number(this.by.value)));
    this.grouped = labelled("Group by program", Object.assign(document.createElement("input"), { type: "checkbox" }));
    this.grouped.checked = this.programs.length > 1;
    this.grouped.addEventListener("change", () => this.refresh());
    this.compare = make("button", tools, { textContent: "Compare the two chosen runs", disabled: true });
    this.compare.addEventListener("click", () => this.showComparison());
    this.count = make("span", tools, { role: "status" });
    this.body = make("div", list);
    this.refresh();
  }

  sort(order) { this.order = order; this.by.value = order; this.refresh(); }

  choose(run, is_chosen) {
    is_chosen ? this.chosen.add(run) : this.chosen.delete(run);
    this.compare.disabled = this.chosen.size !== 2;
  }

  show(title, src) {
    const frame = Object.assign(document.createElement("iframe"), { title, src });
    frame.setAttribute("sandbox", "allow-scripts");
    this.shown.replaceChildren(frame);
    frame.scrollIntoView({ block: "nearest" });
  }

  showComparison() {
    const [before, after] = [...this.chosen].sort(ORDERS[1][1]);
    this.show(`${before.name} and ${after.name}`, at("compare", { before: before.id, after: after.id }));
  }

  refresh() {
    const asked = this.words.value.toLowerCase().split(/\s+/), only = this.program.value;
    const found = this.runs.filter((run) =>
      (only === "*" || run.program === only) && asked.every((word) => words(run).includes(word)));
    this.count.textContent = found.length === this.runs.length ? "" : `${found.length} of ${this.runs.length} runs`;
    this.body.replaceChildren();
    const programs = [...new Set(found.map((run) => run.program))];
    const groups = this.grouped.checked ? programs.map((one) => found.filter((run) => run.program === one)) : [found];
    for (const runs of groups) {
      const several = groups.length > 1 || this.grouped.checked;
      if (several) make("h2", this.body, { textContent: runs[0].program || UNKNOWN });
      if (programs.length === 1 || several) showTrend(this.body, runs);
      showTable(this.body, runs, this);
    }
  }
}

export async function render() {
  make("style", document.head, { textContent: STYLE });
  document.documentElement.lang = "en";
  document.body.replaceChildren();
  const main = make("main", document.body), list = make("div", main), shown = make("div", main);
  const runs = await (await fetch("./runs")).json();
  if (runs.length) new Tab(runs, list, shown);
  else make("p", list, { textContent: "No diagnosis below the log directory yet: run `profkit diagnose`." });
}
