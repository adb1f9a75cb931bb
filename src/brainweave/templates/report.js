"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];

  // Light, dark, or as the system has it. Storage may be forbidden to a mailed file.
  const remember = {
    get() { try { return localStorage.getItem("brainweave-theme"); } catch { return null; } },
    set(value) { try { localStorage.setItem("brainweave-theme", value); } catch { /* forgotten */ } },
  };
  const themes = ["auto", "light", "dark"];
  const theme = $("#theme");
  const apply = (name) => {
    if (name === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = name;
    $("span", theme).textContent = name;
    theme.setAttribute("aria-label", "Colours: " + name);
  };
  let current = themes.includes(remember.get()) ? remember.get() : "auto";
  apply(current);
  theme.addEventListener("click", () => {
    current = themes[(themes.indexOf(current) + 1) % themes.length];
    remember.set(current);
    apply(current);
  });

  // The methods paragraph and its references, as text.
  $("#copy").addEventListener("click", async (event) => {
    const source = $("#methods-text");
    const text = [$("p", source).textContent, "", ...$$("li", source).map((li) => li.textContent)].join("\n");
    const button = event.currentTarget;
    try {
      await navigator.clipboard.writeText(text);
      button.textContent = "Copied";
    } catch {
      getSelection().selectAllChildren(source);
      button.textContent = "Selected: press Ctrl+C";
    }
    setTimeout(() => { button.textContent = "Copy for the manuscript"; }, 2500);
  });

  // Brains: all are seen without a script, the chosen one with it.
  const choices = $$("select[data-map]");
  const showMap = () => {
    for (const map of $$(".map")) map.hidden = choices.some((c) => map.dataset[c.dataset.map] !== c.value);
  };
  choices.forEach((choice) => choice.addEventListener("change", showMap));
  showMap();

  const figure = $("#shared-space");
  if (!figure) return;
  const facts = JSON.parse($("#space-facts").textContent);
  const svg = $("svg.space", figure), ring = $(".ring", svg), tip = $(".tip", figure);
  const groups = $$("g", svg);
  const [, , width, height] = svg.getAttribute("viewBox").split(" ").map(Number);
  const margin = Number(svg.dataset.margin);

  // What each dot is: its group gives subject and category, its place the sample.
  const dots = [];
  groups.forEach((group, g) => {
    const [subject, category] = [...group.classList].slice(0, 2).map((name) => Number(name.slice(1)));
    [...group.children].forEach((node, i) => {
      dots.push({ node, group, subject, category, row: facts.order[g][i],
                  x: Number(node.getAttribute("cx")), y: Number(node.getAttribute("cy")) });
    });
  });

  // The numbers that can be downloaded are the numbers that are drawn.
  let columns = null;
  const numbers = () => {
    if (!columns) {
      const address = $("a[download]", figure).getAttribute("href");
      const lines = decodeURIComponent(address.slice(address.indexOf(",") + 1)).trim().split("\n");
      const rows = lines.slice(1).map((line) => line.split(",").slice(-facts.axes.length).map(Number));
      columns = facts.axes.map((_, k) => rows.map((row) => row[k]));
    }
    return columns;
  };
  const axes = $$("select[data-axis]", figure);
  const place = () => {
    hide();
    const chosen = axes.map((select) => Number(select.value));
    const room = [width - 2 * margin, height - 2 * margin];
    const [across, up] = chosen.map((k, axis) => {
      const values = numbers()[k];
      let low = Infinity, high = -Infinity;
      for (const v of values) { if (v < low) low = v; if (v > high) high = v; }
      const span = high > low ? high - low : 1;
      const name = "xy"[axis], round = (v) => String(Number(v.toPrecision(2)));
      $("." + name + "-low", svg).textContent = round(low);
      $("." + name + "-high", svg).textContent = round(high);
      return values.map((v) => margin + (v - low) / span * room[axis]);
    });
    for (const dot of dots) {
      dot.x = across[dot.row];
      dot.y = height - up[dot.row];
      dot.node.setAttribute("cx", dot.x.toFixed(1));
      dot.node.setAttribute("cy", dot.y.toFixed(1));
    }
    $(".axis-x", svg).textContent = facts.axes[chosen[0]];
    $(".axis-y", svg).textContent = facts.axes[chosen[1]];
  };
  axes.forEach((select) => select.addEventListener("change", place));

  const colorBy = $("#color-by");
  const recolor = () => {
    svg.classList.toggle("by-subject", colorBy.value === "subject");
    svg.classList.toggle("by-category", colorBy.value === "category");
  };
  if (svg.classList.contains("by-subject")) colorBy.value = "subject";
  colorBy.addEventListener("change", recolor);

  // Switches: a dot is seen when both its subject and its category are on.
  const off = { s: new Set(), c: new Set() };
  const update = () => {
    hide();
    for (const group of groups) {
      const [subject, category] = [...group.classList].slice(0, 2).map((name) => Number(name.slice(1)));
      group.classList.toggle("off", off.s.has(subject) || off.c.has(category));
    }
    for (const panel of $$(".switches", figure)) {
      const hidden = off[panel.dataset.kind];
      for (const button of $$("button", panel)) {
        const on = button.dataset.n === undefined ? hidden.size === 0 : !hidden.has(Number(button.dataset.n));
        button.setAttribute("aria-pressed", String(on));
      }
    }
  };
  for (const panel of $$(".switches", figure)) {
    const hidden = off[panel.dataset.kind];
    const all = $$("button[data-n]", panel).map((button) => Number(button.dataset.n));
    panel.addEventListener("click", (event) => {
      const button = event.target.closest("button");
      if (!button) return;
      if (button.dataset.n === undefined) {
        if (hidden.size) hidden.clear(); else all.forEach((n) => hidden.add(n));
      } else {
        const n = Number(button.dataset.n);
        // the first click isolates; the next ones add and remove; none left: all again
        if (!hidden.size) all.forEach((m) => { if (m !== n) hidden.add(m); });
        else if (!hidden.delete(n)) hidden.add(n);
        if (hidden.size === all.length) hidden.clear();
      }
      update();
    });
    const kind = panel.dataset.kind;
    const point = (event) => {
      const button = event.type === "pointerleave" ? null : event.target.closest("button[data-n]");
      const name = button ? kind + button.dataset.n : null;
      for (const group of groups) group.classList.toggle("dim", name !== null && !group.classList.contains(name));
    };
    panel.addEventListener("pointerover", (event) => { if (event.pointerType === "mouse") point(event); });
    panel.addEventListener("pointerleave", point);
  }

  // Hover or tap: the nearest dot within a few pixels.
  function hide() { tip.hidden = true; ring.setAttribute("cx", -20); ring.setAttribute("cy", -20); }
  const inspect = (event) => {
    const box = svg.getBoundingClientRect();
    const scale = Math.min(box.width / width, box.height / height);
    const left = (box.width - scale * width) / 2, top = (box.height - scale * height) / 2;
    const x = (event.clientX - box.left - left) / scale, y = (event.clientY - box.top - top) / scale;
    let best = null, distance = (12 / scale) ** 2;
    for (const dot of dots) {
      const d = (dot.x - x) ** 2 + (dot.y - y) ** 2;
      if (d < distance && !dot.group.classList.contains("off")) { best = dot; distance = d; }
    }
    if (!best) { hide(); return; }
    ring.setAttribute("cx", best.x);
    ring.setAttribute("cy", best.y);
    const run = facts.runs[best.row];
    const heading = document.createElement("b");
    heading.textContent = facts.categories[best.category] ?? "unlabelled";
    const name = facts.subjects[best.subject];
    const rest = [/^sub/i.test(name) ? name : "subject " + name];
    if (run) rest.push("run " + run);
    rest.push("sample " + facts.samples[best.row]);
    tip.replaceChildren(heading, rest.join(" · "));
    tip.hidden = false;
    const half = tip.offsetWidth / 2;
    tip.style.left = Math.min(Math.max(left + best.x * scale, half), box.width - half) + "px";
    tip.style.top = top + best.y * scale + "px";
  };
  svg.addEventListener("pointermove", inspect);
  svg.addEventListener("pointerdown", inspect);
  // a finger leaves as soon as it is lifted; what it asked for stays until the next tap
  svg.addEventListener("pointerleave", (event) => { if (event.pointerType === "mouse") hide(); });
  document.addEventListener("pointerdown", (event) => { if (!svg.contains(event.target)) hide(); });
})();
