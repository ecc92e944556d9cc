// profkit's tab: the runs, their step times, the report of one and the comparison of two. Everything is text.
"use strict";
const STYLE = `
  :root { color-scheme: light dark; --text: #1c1e21; --ground: #fff; --faint: #5a6069; --line: #d4d7dc; --link: #1f5fa8;
    --bar: #0072b2; --high: #b3261e; --medium: #8a5300; }
  @media (prefers-color-scheme: dark) { :root { --text: #e6e8eb; --ground: #17181b; --faint: #a4abb5; --line: #3a3e45;
    --link: #8ab8f0; --bar: #3d94cf; --high: #f2938c; --medium: #e3b364; } }
  body { font: 15px/1.5 system-ui, sans-serif; margin: 0; padding: 12px 16px; color: var(--text); background: var(--ground); }
  table { border-collapse: collapse; width: 100%; }
  th, td { text-align: left; padding: 3px 12px 3px 0; vertical-align: top; border-bottom: 1px solid var(--line); }
  td { overflow-wrap: break-word; } td.number, td.started { white-space: nowrap; font-variant-numeric: tabular-nums; }
  td.number { text-align: right; }
  th { color: var(--faint); font-weight: normal; }
  button { font: inherit; color: var(--link); background: none; border: 0; padding: 0; cursor: pointer; text-align: left; }
  .bar { height: 10px; background: var(--bar); border-radius: 2px; margin-top: 6px; }
  .bars { width: 160px; } .high { color: var(--high); } .medium { color: var(--medium); }
  .tools { margin: 8px 0; } .tools button { border: 1px solid var(--line); border-radius: 4px; padding: 2px 10px; }
  .tools button:disabled { color: var(--faint); cursor: default; }
  iframe { width: 100%; height: calc(100vh - 60px); border: 1px solid var(--line); margin-top: 8px; }
  @media (max-width: 700px) {
    thead { display: none; } tr { display: grid; grid-template-columns: 28px minmax(0, 1fr) auto auto; padding: 6px 0;
      border-bottom: 1px solid var(--line); }
    td { border: 0; } td.started, td.bars { display: none; } td.verdict { grid-column: 2 / -1; }
  }`;

const make = (tag, parent, properties = {}) => Object.assign(parent.appendChild(document.createElement(tag)), properties);
const time = (ns) => ns == null ? "" : ns >= 1e9 ? `${(ns / 1e9).toPrecision(3)} s` : ns >= 1e6
  ? `${(ns / 1e6).toPrecision(3)} ms` : `${(ns / 1e3).toPrecision(3)} µs`;
const day = (started) => started.slice(0, 16).replace("T", " ");
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
    open.addEventListener("click", () => show(`The report of ${run.name}`, at("report", { run: run.id })));
    make("td", row, { textContent: day(run.started), title: run.started, className: "started" });
    make("td", row, { textContent: time(run.step_ns), className: "number" });
    const bar = make("div", make("td", row, { className: "bars" }), { className: "bar" });
    bar.style.width = `${(100 * (run.step_ns ?? 0)) / longest}%`;
    const gain = run.saving > 0 ? `${Math.round(100 * run.saving)} %` : "";
    make("td", row, { textContent: gain, className: "number" });
    make("td", row, { textContent: run.verdict, className: `verdict ${run.worst}` });
  }
  compare.addEventListener("click", () => {
    const [before, after] = [...chosen].sort((a, b) => a.started.localeCompare(b.started));
    show(`${before.name} and ${after.name}`, at("compare", { before: before.id, after: after.id }));
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
