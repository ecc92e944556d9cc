// Stands in for Google Charts on the "PyTorch Profiler" page, so that the page needs nothing from the internet:
// a line chart becomes curves, any other chart a table with a bar for the first figure of a row, or for all that a
// chart would stack.
"use strict";
(() => {
  const MOST_ROWS = 200;
  class DataTable {
    columns = [];
    rows = [];
    addColumn(type, label) { this.columns.push(typeof type === "object" ? type : { type, label }); }
    addRow(row) { this.rows.push(row); }
    addRows(rows) { this.rows.push(...rows); }
    setProperty() {}
  }
  const arrayToDataTable = ([heads, ...rows]) => Object.assign(new DataTable(), {
    columns: heads.map((head, i) => ({ label: head.label ?? head, role: head.role, type: typeof rows[0]?.[i] })), rows,
  });
  const text = (tag, content, parent) => Object.assign(parent.appendChild(document.createElement(tag)),
    { textContent: content, style: "text-align:left;padding:1px 12px 1px 0;font-weight:normal" });
  const figure = (value) => typeof value === "number" ? value.toLocaleString(undefined, { maximumFractionDigits: 2 })
    : value?.v ?? value ?? "";
  class Chart {
    bars = true;
    constructor(element) { this.element = element; }
    draw(data, options = {}) {
      this.clearChart();
      const box = this.element.appendChild(document.createElement("div"));
      const height = typeof options.height === "number" ? options.height : 500;
      box.style = `max-height:${height}px;overflow:auto;font:13px sans-serif`;
      if (options.title) text("strong", options.title, box);
      const shown = data.columns.map((column, i) => ({ ...column, i })).filter((column) => !column.role);
      const numbers = this.bars ? shown.filter((column) => column.type === "number") : [];
      const summed = options.isStacked ? numbers : numbers.slice(0, 1);
      const length = (row) => summed.reduce((sum, { i }) => sum + (Number(row[i]) || 0), 0);
      const top = data.rows.reduce((most, row) => Math.max(most, length(row)), 0);
      const table = box.appendChild(document.createElement("table"));
      const head = table.insertRow();
      for (const column of shown) text("th", column.label ?? column.id ?? "", head);
      for (const row of data.rows.slice(0, MOST_ROWS)) {
        const line = table.insertRow();
        for (const column of shown) text("td", figure(row[column.i]), line);
        if (!top) continue;
        const bar = text("td", "", line).appendChild(document.createElement("progress"));
        Object.assign(bar, { max: top, value: length(row), style: "width:7em" });
      }
      if (data.rows.length > MOST_ROWS) text("p", `and ${data.rows.length - MOST_ROWS} more rows`, box);
    }
    clearChart() { this.element.replaceChildren(); }
    getSelection() { return []; }
    setSelection() {}
  }
  class Table extends Chart { bars = false; }
  const COLOURS = ["#0072b2", "#e69f00", "#009e73", "#d55e00"], LEFT = 90, RIGHT = 20, TOP = 10, BOTTOM = 44;
  const drawn = (tag, parent, attributes, content) => {
    const node = parent.appendChild(document.createElementNS("http://www.w3.org/2000/svg", tag));
    for (const [name, value] of Object.entries(attributes)) node.setAttribute(name, value);
    if (content !== undefined) node.textContent = content;
    return node;
  };
  // Of the points that share a pixel the lowest and the highest, in their order: peaks stay.
  const thinned = (points) => {
    const kept = [];
    for (let i = 0; i < points.length;) {
      let low = i, high = i, next = i;
      for (; next < points.length && Math.floor(points[next][0]) === Math.floor(points[i][0]); next++) {
        if (points[next][1] < points[low][1]) low = next;
        if (points[next][1] > points[high][1]) high = next;
      }
      kept.push(...[...new Set([i, low, high, next - 1])].sort((a, b) => a - b).map((at) => points[at]));
      i = next;
    }
    return kept;
  };
  const ticks = (most) => {
    const rough = most / 5, unit = 10 ** Math.floor(Math.log10(rough));
    const step = unit * [1, 2, 5, 10].find((times) => times * unit >= rough);
    return Array.from({ length: Math.floor(most / step) + 1 }, (_, i) => i * step);
  };
  class LineChart extends Chart {
    draw(data, options = {}) {
      const lines = data.columns.map((column, i) => ({ ...column, i })).filter((column, i) => i && !column.role);
      const known = (value) => typeof value === "number" && isFinite(value);
      const rows = data.rows.filter((row) => known(row[0]));
      const largest = (i) => rows.reduce((top, row) => known(row[i]) ? Math.max(top, row[i]) : top, 0);
      const most = Math.max(...lines.map(({ i }) => largest(i))), last = largest(0);
      if (!most || !last) return super.draw(data, options);
      this.clearChart();
      const box = this.element.appendChild(document.createElement("div"));
      if (options.title) text("strong", options.title, box);
      const width = Math.max(this.element.clientWidth, 320);
      const height = typeof options.height === "number" ? options.height : 400;
      const x = (value) => LEFT + (width - LEFT - RIGHT) * value / last;
      const y = (value) => height - BOTTOM - (height - TOP - BOTTOM) * value / most;
      const label = `${options.title ?? ""} ${lines.map((line) => line.label).join(", ")}`;
      const style = "display:block;font:12px sans-serif";
      const svg = drawn("svg", box, { width, height, role: "img", "aria-label": label, style });
      for (const tick of ticks(most)) {
        drawn("line", svg, { x1: LEFT, x2: width - RIGHT, y1: y(tick), y2: y(tick), stroke: "#ddd" });
        drawn("text", svg, { x: LEFT - 6, y: y(tick) + 4, "text-anchor": "end" }, figure(tick));
      }
      for (const tick of ticks(last)) {
        drawn("text", svg, { x: x(tick), y: height - 26, "text-anchor": "middle" }, figure(tick));
      }
      drawn("text", svg, { x: width - RIGHT, y: height - 8, "text-anchor": "end" }, data.columns[0].label ?? "");
      lines.forEach((line, number) => {
        const points = thinned(rows.filter((row) => known(row[line.i])).map((row) => [x(row[0]), y(row[line.i])]));
        const stroke = COLOURS[number % COLOURS.length];
        const path = points.map((point) => point.map((value) => value.toFixed(1)).join(",")).join(" ");
        drawn("polyline", svg, { points: path, fill: "none", stroke, "stroke-width": 1.5 });
        drawn("text", svg, { x: LEFT + 180 * number, y: height - 8, fill: stroke }, line.label ?? "");
      });
    }
  }
  const kinds = ["ColumnChart", "ComboChart", "PieChart", "SteppedAreaChart", "Timeline"];
  const visualization = { DataTable, Table, LineChart, arrayToDataTable, events: { addListener() {} } };
  for (const kind of kinds) visualization[kind] = Chart;
  window.google = { charts: { load: async () => {} }, visualization };
})();
