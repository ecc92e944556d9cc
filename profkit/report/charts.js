// Stands in for Google Charts on the "PyTorch Profiler" page, so that the page needs nothing from the internet:
// each chart becomes a table with a bar for its first figure.
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
      const first = this.bars && shown.find((column) => column.type === "number");
      const top = Math.max(...data.rows.map((row) => first ? Number(row[first.i]) || 0 : 0), 0);
      const table = box.appendChild(document.createElement("table"));
      const head = table.insertRow();
      for (const column of shown) text("th", column.label ?? column.id ?? "", head);
      for (const row of data.rows.slice(0, MOST_ROWS)) {
        const line = table.insertRow();
        for (const column of shown) text("td", figure(row[column.i]), line);
        if (!top) continue;
        const bar = text("td", "", line).appendChild(document.createElement("progress"));
        Object.assign(bar, { max: top, value: Number(row[first.i]) || 0, style: "width:7em" });
      }
      if (data.rows.length > MOST_ROWS) text("p", `and ${data.rows.length - MOST_ROWS} more rows`, box);
    }
    clearChart() { this.element.replaceChildren(); }
    getSelection() { return []; }
    setSelection() {}
  }
  class Table extends Chart { bars = false; }
  const kinds = ["ColumnChart", "ComboChart", "LineChart", "PieChart", "SteppedAreaChart", "Timeline"];
  const visualization = { DataTable, Table, arrayToDataTable, events: { addListener() {} } };
  for (const kind of kinds) visualization[kind] = Chart;
  window.google = { charts: { load: async () => {} }, visualization };
})();
