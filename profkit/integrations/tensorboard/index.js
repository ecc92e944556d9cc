// profkit's tab: the runs, their step times, the report of one and the comparison of two. Everything is text.
"use strict";
const STYLE = `
  body { font: 15px/1.5 system-ui, sans-serif; margin: 0; padding: 12px 16px; color: #1c1e21; background: #fff; }
  table { border-collapse: collapse; width: 100%; }
  th, td { text-align: left; padding: 3px 12px 3px 0; vertical-align: top; border-bottom: 1px solid #e3e5e8; }
  td.number { text-align: right; white-space: nowrap; font-variant-numeric: tabular-nums; }
  th { color: #5a6069; font-weight: normal; }
  button { font: inherit; color: #1f5fa8; background: none; border: 0; padding: 0; cursor: pointer; text-align: left; }
  .bar { height: 10px; background: #0072b2; border-radius: 2px; margin-top: 6px; }
  .bars { width: 160px; } .high { color: #b3261e; } .medium { color: #8a5300; }
  .tools { margin: 8px 0; } .tools button { border: 1px solid #d4d7dc; border-radius: 4px; padding: 2px 10px; }
  .tools button:disabled { color: #9aa1ab; cursor: default; }
  iframe { width: 100%; height: calc(100vh - 60px); border: 1px solid #d4d7dc; margin-top: 8px; }`;

const make = (tag, parent, properties = {}) => Object.assign(parent.appendChild(document.createElement(tag)), properties);
const time = (ns) => ns == null ? "" : ns >= 1e9 ? `${(ns / 1e9).toPrecision(3)} s` : ns >= 1e6
  ? `${(ns / 1e6).toPrecision(3)} ms` : `${(ns / 1e3).toPrecision(3)} us`;
const at = (route, values) => `./${route}?${new URLSearchParams(values)}`;

function showRuns(runs, list, shown) {
  const show = (title, src) => {
    const frame = Object.assign(document.createElement("iframe"), { title, src });
    frame.setAttribute("sandbox", "allow-scripts");
    shown.replaceChildren(frame);
    frame.scrollIntoView({ block: "nearest" });
  };
  const longest = Math.max(...runs.map((run) => run.step_ns ?? 0), 1), chosen = new Set();
  const tools = make("div", list, { className: "tools" });
  const compare = make("button", tools, { textContent: "Compare the two chosen runs", disabled: true });
  const table = make("table", list), head = make("tr", make("thead", table));
  for (const name of ["", "run", "started", "step", "", "to gain", "verdict"]) make("th", head, { textContent: name });
  const body = make("tbody", table);
  for (const run of runs) {
    const row = make("tr", body);
    const box = make("input", make("td", row), { type: "checkbox", ariaLabel: `choose ${run.name}` });
    box.addEventListener("change", () => {
      box.checked ? chosen.add(run) : chosen.delete(run);
      compare.disabled = chosen.size !== 2;
    });
    const open = make("button", make("td", row), { textContent: run.name, className: "open" });
    open.addEventListener("click", () => show(`The report of ${run.name}`, at("report", { run: run.name })));
    make("td", row, { textContent: run.started });
    make("td", row, { textContent: time(run.step_ns), className: "number" });
    const bar = make("div", make("td", row, { className: "bars" }), { className: "bar" });
    bar.style.width = `${(100 * (run.step_ns ?? 0)) / longest}%`;
    const gain = run.saving > 0 ? `${Math.round(100 * run.saving)} %` : "";
    make("td", row, { textContent: gain, className: "number" });
    make("td", row, { textContent: run.verdict, className: run.worst });
  }
  compare.addEventListener("click", () => {
    const [before, after] = [...chosen].sort((a, b) => a.started.localeCompare(b.started));
    show(`${before.name} and ${after.name}`, at("compare", { before: before.name, after: after.name }));
  });
}

export async function render() {
  make("style", document.head, { textContent: STYLE });
  document.body.replaceChildren();
  const list = make("div", document.body), shown = make("div", document.body);
  const runs = await (await fetch("./runs")).json();
  if (runs.length) showRuns(runs, list, shown);
  else make("p", list, { textContent: "No diagnosis below the log directory yet: run `profkit diagnose`." });
}
