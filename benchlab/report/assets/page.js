// Sorting and filtering of the requests table, and the theme switch. Text goes in through textContent only.
"use strict";
(() => {
  const root = document.documentElement;
  root.classList.add("scripted");

  // Theme: system, light, dark; kept in the fragment so that a link carries it.
  const themes = ["system", "light", "dark"];
  const button = document.getElementById("theme");
  const wanted = /(?:^#|[#&])theme=(light|dark)/.exec(location.hash);
  let theme = wanted ? wanted[1] : "system";
  const applyTheme = () => {
    if (theme === "system") delete root.dataset.theme; else root.dataset.theme = theme;
    button.textContent = "Theme: " + theme;
  };
  button.addEventListener("click", () => {
    theme = themes[(themes.indexOf(theme) + 1) % themes.length];
    try { history.replaceState(null, "", theme === "system" ? "#" : "#theme=" + theme); } catch { /* file:// may refuse */ }
    applyTheme();
  });
  applyTheme();

  // Details open for print, so that paper holds the tables.
  addEventListener("beforeprint", () => document.querySelectorAll("#stages details").forEach((d) => { d.open = true; }));

  const source = document.getElementById("requests-data");
  if (!source) return;
  const { columns, rows } = JSON.parse(source.textContent);
  const table = document.querySelector("#requests-table table");
  const find = document.getElementById("rq-find"), count = document.getElementById("rq-count");
  const outcome = document.getElementById("rq-outcome"), load = document.getElementById("rq-load");
  const more = document.getElementById("rq-more");
  const step = 25;
  let shown = step, sortBy = null, down = true;

  const formats = columns.map(([, places]) => places === null ? null :
    new Intl.NumberFormat("en", { minimumFractionDigits: places, maximumFractionDigits: places }));
  const text = (value, place) => value === null ? "—" : typeof value === "number" && formats[place] ? formats[place].format(value) : value;
  const fillOptions = (select, column) => {
    for (const value of [...new Set(rows.map((row) => row[column]))].sort()) {
      const option = document.createElement("option");
      option.value = option.textContent = value;
      select.append(option);
    }
  };
  fillOptions(load, 1);
  fillOptions(outcome, 2);

  // Failures first, then the slowest, until a header is pressed.
  const natural = (a, b) => (a[2] === "ok") - (b[2] === "ok") || (b[6] ?? -1) - (a[6] ?? -1);
  const compare = (a, b) => {
    const x = a[sortBy], y = b[sortBy];
    if (x === null || y === null) return (x === null) - (y === null);
    const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
    return down ? -order : order;
  };
  const draw = () => {
    const words = find.value.toLowerCase();
    const kept = rows.filter((row) =>
      (!outcome.value || row[2] === outcome.value) && (!load.value || row[1] === load.value) &&
      (!words || row.some((cell) => typeof cell === "string" && cell.toLowerCase().includes(words))));
    kept.sort(sortBy === null ? natural : compare);
    const body = document.createElement("tbody");
    for (const row of kept.slice(0, shown)) {
      const line = document.createElement("tr");
      row.forEach((value, place) => {
        const cell = document.createElement(place === 0 ? "th" : "td");
        if (place === 0) cell.scope = "row";
        if (formats[place]) cell.className = "num";
        cell.textContent = text(value, place);
        line.append(cell);
      });
      body.append(line);
    }
    table.tBodies[0].replaceWith(body);
    count.textContent = `${Math.min(shown, kept.length)} of ${kept.length} matching rows, ${rows.length} in this page`;
    more.hidden = shown >= kept.length;
  };

  table.tHead.rows[0].querySelectorAll("th").forEach((head, place) => {
    const press = document.createElement("button");
    press.type = "button";
    press.textContent = head.textContent;
    head.replaceChildren(press);
    press.addEventListener("click", () => {
      down = sortBy === place ? !down : true;
      sortBy = place;
      table.tHead.querySelectorAll("th").forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      table.tHead.querySelectorAll("button").forEach((b, i) => { b.textContent = columns[i][0] + (i === place ? (down ? " ▼" : " ▲") : ""); });
      draw();
    });
  });
  for (const control of [find, outcome, load]) control.addEventListener("input", () => { shown = step; draw(); });
  more.addEventListener("click", () => { shown += 200; draw(); });
  draw();
})();
