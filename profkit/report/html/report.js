// Zoom, folding, sorting and themes of the report. Without it the page shows the same, unmoved.
"use strict";
(() => {
  const all = (selector, within = document) => [...within.querySelectorAll(selector)];
  for (const element of all("[data-script]")) element.hidden = false;

  const root = document.documentElement;
  document.getElementById("theme")?.addEventListener("click", () => {
    const dark = root.dataset.theme ? root.dataset.theme === "dark" : matchMedia("(prefers-color-scheme: dark)").matches;
    root.dataset.theme = dark ? "light" : "dark";
  });
  document.getElementById("copy")?.addEventListener("click", async (event) => {
    const text = document.title;
    try { await navigator.clipboard.writeText(text); event.target.textContent = "Copied"; }
    catch { getSelection().selectAllChildren(document.querySelector("h1")); }
  });

  const unfold = () => {  // browsers of before 2024 leave a target's folds closed
    const target = document.getElementById(location.hash.slice(1));
    let fold = target?.closest("details");
    if (!fold) return;
    for (; fold; fold = fold.parentElement.closest("details")) fold.open = true;
    target.scrollIntoView();
  };
  addEventListener("hashchange", unfold);
  unfold();

  const timeline = document.getElementById("timeline");
  if (timeline) {
    const areas = all(".area", timeline), labels = all(".axis text", timeline), span = Number(timeline.dataset.spanNs);
    const shown = document.getElementById("shown");
    let from = 0, to = 1;
    const time = (ns) => ns >= 1e9 ? `${(ns / 1e9).toPrecision(3)} s` : ns >= 1e6 ? `${(ns / 1e6).toPrecision(3)} ms`
      : `${(ns / 1e3).toPrecision(3)} µs`;
    const show = (begin, end) => {
      const width = Math.min(1, Math.max(end - begin, 0.002));
      from = Math.min(Math.max(begin, 0), 1 - width);
      to = from + width;
      for (const area of areas) {
        const columns = Number(area.dataset.columns);
        area.setAttribute("viewBox", `${from * columns} 0 ${width * columns} ${area.dataset.height}`);
      }
      for (const label of labels) {
        const x = (Number(label.dataset.x) / 100 - from) / width;
        label.setAttribute("x", `${x * 100}%`);
        label.setAttribute("visibility", x >= 0 && x < 0.98 ? "visible" : "hidden");
      }
      shown.textContent = `${time(width * span)} shown${width < 1 ? `, from ${time(from * span)} on` : ""}`;
    };
    const zoom = (factor, at = (from + to) / 2) => show(at - (at - from) * factor, at + (to - at) * factor);
    const move = (share) => show(from + share * (to - from), to + share * (to - from));
    const actions = { in: () => zoom(0.5), out: () => zoom(2), left: () => move(-0.25), right: () => move(0.25),
      all: () => show(0, 1) };
    for (const button of all("[data-do]", timeline)) button.addEventListener("click", actions[button.dataset.do]);
    const keys = { "+": "in", "=": "in", "-": "out", ArrowLeft: "left", ArrowRight: "right", 0: "all" };
    timeline.addEventListener("keydown", (event) => {
      if (event.target.closest("a") || event.ctrlKey || event.metaKey || !(event.key in keys)) return;
      event.preventDefault();
      actions[keys[event.key]]();
    });
    let start = null;
    const place = (event, area) => {
      const box = area.getBoundingClientRect();
      return from + Math.min(Math.max((event.clientX - box.left) / box.width, 0), 1) * (to - from);
    };
    for (const area of areas) {
      area.addEventListener("pointerdown", (event) => { start = place(event, area); });
      area.addEventListener("pointerup", (event) => {
        const end = place(event, area);
        if (start !== null && Math.abs(end - start) > (to - from) / 100) show(Math.min(start, end), Math.max(start, end));
        start = null;
      });
      area.addEventListener("dblclick", actions.all);
    }
    show(0, 1);
    for (const link of all("[data-from]")) {
      link.addEventListener("click", () => show(Number(link.dataset.from), Number(link.dataset.to)));
    }
  }

  const flame = document.getElementById("flame");
  if (flame) {
    const leaves = all(".leaf", flame);
    const focus = (x, width) => {
      for (const leaf of leaves) {
        leaf.setAttribute("x", `${(Number(leaf.dataset.x) - x) / width * 100}%`);
        leaf.setAttribute("width", `${Math.max(Number(leaf.dataset.width) / width * 100, 0)}%`);
        const text = leaf.querySelector("text");
        if (text) text.textContent = Number(leaf.dataset.width) / width >= 0.09 ? leaf.dataset.name : "";
      }
    };
    for (const leaf of leaves) {
      leaf.addEventListener("click", () => focus(Number(leaf.dataset.x), Number(leaf.dataset.width)));
      leaf.addEventListener("keydown", (event) => { if (event.key === "Enter") leaf.dispatchEvent(new Event("click")); });
    }
    document.getElementById("flame-all").addEventListener("click", () => focus(0, 100));
    document.getElementById("flame-find").addEventListener("input", (event) => {
      const wanted = event.target.value.trim().toLowerCase();
      const found = leaves.filter((leaf) => leaf.dataset.name.toLowerCase().includes(wanted));
      for (const leaf of leaves) leaf.classList.toggle("other-name", wanted !== "" && !found.includes(leaf));
      document.getElementById("flame-found").textContent = wanted ? `${found.length} of ${leaves.length}` : "";
    });
  }

  for (const table of all("table.sortable")) {
    all("thead button", table).forEach((button, column) => button.addEventListener("click", () => {
      const body = table.tBodies[0], rows = [...body.rows], key = (row) => row.cells[column].dataset.sort;
      const down = button.parentElement.getAttribute("aria-sort") !== "descending";
      const order = (a, b) => isNaN(key(a)) ? key(a).localeCompare(key(b)) : Number(key(a)) - Number(key(b));
      rows.sort((a, b) => down ? order(b, a) : order(a, b));
      for (const head of all("th", table.tHead)) head.removeAttribute("aria-sort");
      button.parentElement.setAttribute("aria-sort", down ? "descending" : "ascending");
      body.append(...rows);
    }));
  }
})();
